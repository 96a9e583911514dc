"""Signatures of requests (version 4), recomputed with botocore's own signer and compared.

The head of a request is checked before its body is read, so bodies of strangers are not read.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from time import time
from typing import Any, Final

from attrs import field, frozen
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest, HTTPHeaders
from botocore.credentials import Credentials

from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown

MAX_SKEW_S: Final = 15 * 60.0
"""How much a client's clock may differ from ours; a captured request can be replayed that long."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_DATE: Final = "x-amz-date"
_BODY_SUM: Final = "x-amz-content-sha256"
_SERVICE: Final = "sqs"

_HAS_TO_BE_SIGNED: Final = ("host", _DATE, "x-amz-target", _BODY_SUM)
"""Headers that must be signed if present: unsigned headers could have been changed on the way."""


@frozen(kw_only=True)
class RequestHead:
    """The part of a request before its body. Header names are in lower case."""

    method: str
    url: str
    """The URL as the client signs it: scheme, host, and the path with its escapes."""
    headers: Mapping[str, str]


@frozen(kw_only=True)
class Claim:
    """A request's claims about its signature, checked as far as its head allows."""

    access_key: str
    secret: str = field(repr=False)
    region: str
    timestamp: str
    signed: tuple[str, ...]
    signature: str


class _ReceivedSigner(SigV4Auth):  # type: ignore[misc] # botocore has no types
    """Signs exactly the headers of a request that its client signed."""

    def headers_to_sign(self, request: AWSRequest) -> HTTPHeaders:
        return request.headers


class SignatureCheck:
    """Checks signatures against the secrets of access keys."""

    def __init__(self, credentials: Mapping[str, str], now: Callable[[], float] = time):
        """``credentials`` are secrets by access key; ``now`` is in seconds since 1970."""
        self._credentials = credentials
        self._now = now

    def claim_of(self, head: RequestHead) -> Claim:
        """Return the claims in the head of a request; raise SqsError if they are invalid."""
        authorization = head.headers.get("authorization", "")
        algorithm, _, rest = authorization.partition(" ")
        if not authorization:
            message = "the request is not signed: it has no header Authorization"
            raise SqsError(SqsErrorKind.UNSIGNED, message)
        if algorithm != _ALGORITHM:
            raise _incomplete(f"it is {shown(algorithm)}, not {_ALGORITHM}")
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        scope = parts.get("Credential", "").split("/")
        signed = tuple(parts.get("SignedHeaders", "").split(";"))
        timestamp = head.headers.get(_DATE, "")
        if len(scope) < 5 or not parts.get("Signature"):
            raise _incomplete("it must have Credential, SignedHeaders and Signature")
        access_key = "/".join(scope[:-4])
        day, region, service, end = scope[-4:]
        if (day, service, end) != (timestamp[:8], _SERVICE, "aws4_request"):
            raise _incomplete(f"its scope must be the day of {_DATE}, a region, and {_SERVICE}")
        for name in _HAS_TO_BE_SIGNED:
            if name in head.headers and name not in signed:
                raise _incomplete(f"it does not cover the header {name}")
        self._check_time(timestamp)
        secret = self._credentials.get(access_key)
        if secret is None:
            message = "The security token included in the request is invalid: the access key is"
            message += " not one of sqs.credentials."
            raise SqsError(SqsErrorKind.UNKNOWN_ACCESS_KEY, message)
        return Claim(
            access_key=access_key,
            secret=secret,
            region=region,
            timestamp=timestamp,
            signed=signed,
            signature=parts["Signature"],
        )

    def check(self, claim: Claim, head: RequestHead, body: bytes) -> None:
        """Raise SqsError unless the signature is that of this request."""
        headers = HTTPHeaders()
        for name in claim.signed:
            if name not in head.headers:
                raise _wrong(f"the header {shown(name)}, which it covers, is missing")
            headers[name] = head.headers[name]
        sum_of_client = head.headers.get(_BODY_SUM)
        if sum_of_client is not None and sum_of_client != sha256(body).hexdigest():
            raise _wrong(f"{_BODY_SUM} is not the sum of the body")
        if not hmac.compare_digest(
            _signature(claim, head, headers, body), claim.signature.encode()
        ):
            raise _wrong("check the secret key, and that no proxy changes the header Host")

    def _check_time(self, timestamp: str) -> None:
        try:
            signed_at = datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise _incomplete(f"{_DATE} is {shown(timestamp)}") from None
        early_s = signed_at.timestamp() - self._now()
        if abs(early_s) > MAX_SKEW_S:
            word = "expired" if early_s < 0 else "not yet current"
            off, most = (round(each / 60) for each in (abs(early_s), MAX_SKEW_S))
            message = (
                f"Signature {word}: {timestamp} is {off} min from this clock, at most {most} are"
                " allowed"
            )
            raise SqsError(SqsErrorKind.WRONG_SIGNATURE, message)


def _signature(claim: Claim, head: RequestHead, headers: HTTPHeaders, body: bytes) -> bytes:
    credentials = Credentials(claim.access_key, claim.secret)
    signer: Any = _ReceivedSigner(credentials, _SERVICE, claim.region)
    request = AWSRequest(method=head.method, url=head.url, headers=headers, data=body)
    request.context["timestamp"] = claim.timestamp
    canonical = signer.canonical_request(request)
    signature: str = signer.signature(signer.string_to_sign(request, canonical), request)
    return signature.encode()


def _incomplete(why: str) -> SqsError:
    return SqsError(SqsErrorKind.INCOMPLETE_SIGNATURE, f"the signature cannot be checked: {why}")


def _wrong(why: str) -> SqsError:
    message = (
        "The request signature we calculated does not match the signature you provided: " + why
    )
    return SqsError(SqsErrorKind.WRONG_SIGNATURE, message)
