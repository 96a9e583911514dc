"""New failures: those that no other version of the application has among its dead letters."""
