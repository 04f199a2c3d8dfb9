"""TLS options as a user gives them, turned into a context once per client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from deepdraft.errors import UsageError
from deepdraft.transport.fault import tls_reason


@dataclass(frozen=True)
class TlsOptions:
    """How to trust the server and how to be trusted by it; every default is the system's."""

    ca_file: Path | None = None
    """PEM certificates of authorities to trust instead of the system's."""
    client_cert_file: Path | None = None
    """PEM certificate (chain) to show to the server."""
    client_key_file: Path | None = None
    """Its key; None when it stands in the certificate's file."""
    insecure: bool = False
    """Trust any certificate for any name."""


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """The context for one client. HTTP/1.1 only.

    Raises UsageError naming the file that is missing or is not what it should be.
    """
    ca_file = None if options.insecure else options.ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"can't read the authorities' certificates in {ca_file}: {_words(error)}") from error
    context.set_alpn_protocols(["http/1.1"])
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.client_cert_file is None:
        if options.client_key_file is not None:
            raise UsageError("a client key needs its certificate", hint="give the certificate's file too")
        return context
    try:
        context.load_cert_chain(options.client_cert_file, options.client_key_file, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        files = " and ".join(str(file) for file in (options.client_cert_file, options.client_key_file) if file)
        raise UsageError(f"can't use the client certificate in {files}: {_words(error)}") from error
    return context


def _no_password() -> str:
    """Refuse an encrypted key: OpenSSL would otherwise stop and ask on the terminal."""
    raise ValueError("the key is encrypted; decrypt it first")


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return tls_reason(error) or str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
