"""New failures: what no other version of the application has among its dead letters."""
