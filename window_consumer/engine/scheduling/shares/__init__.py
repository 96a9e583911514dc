"""Classes of records that share the slots: fair shares and priority."""
