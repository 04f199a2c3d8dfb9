"""From a model, a device and an engine's flags to what its memory holds, and back.

`open_model` reads a config, a checkpoint's headers or a bundled shape; `engines.plan_for` gives the `Plan` of an
engine and version: tokens of the KV pool, a ledger of where memory goes, and a verdict. Pure arithmetic over what is
read from disk: nothing is measured, no server is asked, no device is touched.
"""
