import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = True
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
TIME_ZONE = "UTC"  # of log lines, too: Django sets it for the process
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ.get("PGHOST", "localhost"),
        "PORT": os.environ.get("PGPORT", "5432"),
        "USER": os.environ.get("PGUSER", "shop"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "NAME": os.environ.get("PGDATABASE", "shop"),
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
    }
}
