"""The KV cache: its shape (`layout`), the pages (`pool`), one request's pages (`page_table`) and the pages kept for
prompts to come (`radix`).

The law: every page of the pool is in exactly one of three places, so free + privately held by requests + cached in
the radix cache = pool. A page that a request shares with the radix cache counts as cached.
"""
