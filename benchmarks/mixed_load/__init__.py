"""Our server under mixed load for minutes on end: does it leak, is it ever wrong, does /health stay quick?"""
