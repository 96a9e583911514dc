import os

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from window_consumer.database import Outbox


class Base(DeclarativeBase):
    pass


web = Flask("shop")
web.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE_URL"]
db = SQLAlchemy(web, model_class=Base)


class Order(db.Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


class Invoice(db.Model):
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]


outbox = Outbox(db.metadata)


@web.post("/orders/<item>")
def place(item: str) -> dict[str, int]:
    order = Order(item=item)
    db.session.add(order)
    db.session.flush()  # the order gets its number
    number = str(order.id).encode()
    outbox.add(db.session, "orders", number, number)
    db.session.commit()
    return {"id": order.id}
