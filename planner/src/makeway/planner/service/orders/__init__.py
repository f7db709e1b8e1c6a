"""Between the streams of orders and the ledger: following them, repairs of marks, the fence of orders."""
