import logging

from window_consumer import App, Fatal, Record

app = App("shop")
log = logging.getLogger("shop")


@app.handler("orders", ordering="key")
def charge(order: Record) -> None:
    bill = order.json()
    if bill["amount"] <= 0:
        raise Fatal(f"nothing to charge in {bill}")
    log.info("charged %s: %d (%s)", bill["customer"], bill["amount"], order.id)
