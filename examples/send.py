import json
import os

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"]})
for number in range(20):
    customer = f"customer-{number % 4}"
    bill = {"customer": customer, "amount": 10 * number}
    producer.produce("orders", key=customer, value=json.dumps(bill))
producer.flush()
