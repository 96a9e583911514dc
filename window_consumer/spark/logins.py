"""``kafka.login`` for Spark's Kafka client, which is a Java client and fetches tokens itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from window_consumer.kafka.login.gcp import GcpLogin
from window_consumer.kafka.login.login import Login
from window_consumer.kafka.login.msk_iam import MskIamLogin
from window_consumer.kafka.login.oidc import OidcLogin
from window_consumer.model.errors import UsageError

_BEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_MODULE: Final = f"{_BEARER}.OAuthBearerLoginModule required"
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"

_TIMEOUT_MS: Final = "8000"
"""The same as for other clients. By default Java waits for ever for a hanging token server."""

_JARS: Final = {
    "software.amazon.msk.auth.iam.IAMClientCallbackHandler": (
        "msk-iam",
        "software.amazon.msk:aws-msk-iam-auth:VERSION",
    ),
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": (
        "gcp",
        "com.google.cloud.hosted.kafka:managed-kafka-auth-login-handler:VERSION",
    ),
}
"""Classes of the vendors: the login that needs them, and the package that has them."""


def java_login(login: Login) -> dict[str, str]:
    """Return the Java client's properties; raise UsageError for an unsupported login."""
    if isinstance(login, OidcLogin):
        return _oidc(login)
    if isinstance(login, MskIamLogin):
        return _msk_iam(login)
    if isinstance(login, GcpLogin):
        (handler,) = (name for name, (kind, _) in _JARS.items() if kind == login.kind)
        return {_MECHANISM: "OAUTHBEARER", _JAAS: f"{_MODULE};", _LOGIN_HANDLER: handler}
    raise UsageError(
        f"kafka.login: {login.kind} is not supported by the pipeline, as there is no such login for"
        " Spark's Kafka client: write kafka.login: {kind: oidc, token_url:"
        " https://login.microsoftonline.com/TENANT/oauth2/v2.0/token, client_id: ...,"
        " client_secret: ..., scope: https://NAMESPACE.servicebus.windows.net/.default}"
    )


def _oidc(login: OidcLogin) -> dict[str, str]:
    lacking = [key for key in ("audience", "ca_file") if getattr(login, key)]
    if lacking:
        raise UsageError(
            f"kafka.login.{lacking[0]} is not supported by the pipeline, as Spark's Kafka client"
            " has no such setting: leave it out of pipeline.yaml"
            + ("; Java's truststore decides" if lacking == ["ca_file"] else "")
        )
    options = {"clientId": login.client_id, "clientSecret": login.client_secret}
    options |= {"scope": login.scope} if login.scope else {}
    options |= {f"extension_{name}": value for name, value in login.extensions}
    given = " ".join(f'{name}="{quoted(value)}"' for name, value in options.items())
    return {
        _MECHANISM: "OAUTHBEARER",
        _JAAS: f"{_MODULE} {given};",
        _LOGIN_HANDLER: f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": login.token_url,
        "sasl.login.connect.timeout.ms": _TIMEOUT_MS,
        "sasl.login.read.timeout.ms": _TIMEOUT_MS,
    }


def _msk_iam(login: MskIamLogin) -> dict[str, str]:
    options = {"awsProfileName": login.profile, "awsRoleArn": login.role_arn}
    given = "".join(f' {key}="{quoted(value)}"' for key, value in options.items() if value)
    (handler,) = (name for name, (kind, _) in _JARS.items() if kind == login.kind)
    return {
        _MECHANISM: "AWS_MSK_IAM",
        _JAAS: f"software.amazon.msk.auth.iam.IAMLoginModule required{given};",
        _CLIENT_HANDLER: handler,
    }


def require_class(session: SparkSession, given: Mapping[str, str]) -> None:
    """Raise UsageError if the options of a source name a vendor's class that Spark lacks."""
    for key in (_LOGIN_HANDLER, _CLIENT_HANDLER):
        name = given.get(f"kafka.{key}", "")
        if name in _JARS and not _has_class(session, name):
            kind, package = _JARS[name]
            raise UsageError(
                f"kafka.login: {kind} needs a jar that Spark does not have: write"
                f" spark: {{properties: {{spark.jars.packages: {package!r}}}}} in pipeline.yaml, or"
                " spark.jars with the jar's place"
            )


def _has_class(session: SparkSession, name: str) -> bool:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with pyspark

    java: Any = session._jvm  # noqa: SLF001 - pyspark has no other way to its JVM
    try:
        java.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def quoted(text: str | None) -> str:
    """Return a text escaped for the quotes of a JAAS configuration."""
    return (text or "").replace("\\", "\\\\").replace('"', '\\"')
