"""Produces the records of a plan with a client that Dueline has no part in, and tells what became of each.

    produce.py CLIENT BROKERS TOPIC PLAN [SETTINGS]

CLIENT is confluent-murmur2, confluent-default or kafka-python. PLAN is a file with one JSON object a line:
{"n": number, "at": milliseconds after 1970 to send it at, "key": base64 or null, "value": base64 or null}.
SETTINGS is a JSON object with further settings of librdkafka, for the first two of the clients.
One JSON object a line goes to stdout for each record that was acknowledged or refused.
"""

import base64
import json
import sys
import time


def text(data):
    return None if data is None else base64.b64decode(data)


def tell(n, partition, offset, appended, error=None):
    said = {"n": n, "partition": partition, "offset": offset, "appended": appended, "error": error}
    said["told"] = int(time.time() * 1000)
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def wait_until(at, poll):
    while True:
        left = at / 1000 - time.time()
        if left <= 0:
            return
        poll(min(left, 0.05))


def confluent(brokers, topic, plan, partitioner, settings):
    from confluent_kafka import Producer

    options = {
        "bootstrap.servers": brokers,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.max.bytes": 20_000_000,
        "message.timeout.ms": 180_000,
        **settings,
    }
    if partitioner:
        options["partitioner"] = partitioner
    producer = Producer(options)

    def told(n):
        def call(error, message):
            if error is not None:
                tell(n, None, None, None, str(error))
            else:
                tell(n, message.partition(), message.offset(), message.timestamp()[1])

        return call

    for entry in plan:
        wait_until(entry["at"], producer.poll)
        while True:
            try:
                key, value = text(entry["key"]), text(entry["value"])
                producer.produce(topic, key=key, value=value, on_delivery=told(entry["n"]))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    return producer.flush(180)


def kafka_python(brokers, topic, plan):
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=brokers,
        acks="all",
        linger_ms=5,
        max_request_size=20_000_000,
        delivery_timeout_ms=180_000,
    )

    def told(n):
        return lambda found: tell(n, found.partition, found.offset, found.timestamp)

    def refused(n):
        return lambda error: tell(n, None, None, None, str(error))

    for entry in plan:
        wait_until(entry["at"], time.sleep)
        future = producer.send(topic, key=text(entry["key"]), value=text(entry["value"]))
        future.add_callback(told(entry["n"])).add_errback(refused(entry["n"]))
    producer.flush(180)
    producer.close()
    return 0


def main():
    client, brokers, topic, path, *settings = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        plan = [json.loads(line) for line in file]
    if client == "kafka-python":
        left = kafka_python(brokers, topic, plan)
    else:
        partitioner = {"confluent-murmur2": "murmur2_random", "confluent-default": None}[client]
        left = confluent(brokers, topic, plan, partitioner, json.loads(settings[0]) if settings else {})
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
