import logging

from window_consumer import App, Fatal, Record

app = App("shop")


@app.handler("orders", ordering="key")
def charge(order: Record) -> None:
    bill = order.json()
    if bill["amount"] <= 0:
        raise Fatal(f"nothing to charge in {bill}")
    logging.getLogger("shop").info("charged %s: %d", bill["customer"], bill["amount"])
