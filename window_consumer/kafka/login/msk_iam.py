"""``login: msk-iam``: Amazon MSK with IAM, by Amazon's signer. Tokens are signed offline."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from attrs import evolve, field, frozen

from window_consumer.kafka.login.login import Login, login_key
from window_consumer.kafka.oauth import OauthToken

_REGION_OF_BROKER: Final = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?(?=,|\s|$)"
)


@frozen(kw_only=True)
class MskIamLogin(Login):
    """Amazon MSK, with the usual credentials of AWS's clients."""

    kind: ClassVar[str] = "msk-iam"
    extra: ClassVar[str] = "msk"
    library: ClassVar[str] = "aws_msk_iam_sasl_signer"

    region: str = field(
        default="",
        metadata=login_key(
            "The cluster's region. Default: that in the brokers' names, then AWS_REGION,"
            " then AWS_DEFAULT_REGION."
        ),
    )
    profile: str = field(
        default="", metadata=login_key("A profile of AWS's configuration file to sign with.")
    )
    role_arn: str = field(default="", metadata=login_key("A role to assume for signing."))

    @property
    def source(self) -> str:
        return f"AWS credentials for {self.region}"

    def completed(self, brokers: str) -> Login:
        if self.region:
            return self
        named = _REGION_OF_BROKER.search(brokers)
        environ = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
        return evolve(self, region=named[1] if named else environ)

    def obstacles(self) -> Iterator[tuple[str, str]]:
        yield from super().obstacles()
        if not self.region:
            written = "{kind: msk-iam, region: eu-central-1}"
            yield "", f"msk-iam needs the cluster's region: set AWS_REGION, or write {written}"
        if self.profile and self.role_arn:
            yield "role_arn", "profile is also given; keep one of the two"

    def token_function(self) -> OauthToken:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an optional extra

        def token(_config: str) -> tuple[Any, ...]:
            if self.role_arn:
                signed, expiry_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(
                    self.region, self.role_arn
                )
            elif self.profile:
                signed, expiry_ms = MSKAuthTokenProvider.generate_auth_token_from_profile(
                    self.region, self.profile
                )
            else:
                signed, expiry_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
            return signed, expiry_ms / 1000

        return token
