"""Makes users of a Kafka, grants and takes rights, as its administrator.

    rights.py BROKERS CA USER PASSWORD

On stdin a JSON object: {"users": {name: password}, "grant": [right], "take": [right]}, where a right is
{"user": name, "kind": "topic" or "group", "name": name, "operation": as Kafka's tools write it}.
"""

import json
import re
import sys

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)


def binding(kind, right):
    operation = re.sub("(?<!^)(?=[A-Z])", "_", right["operation"]).upper()
    return kind(
        ResourceType[right["kind"].upper()],
        right["name"],
        ResourcePatternType.LITERAL,
        "User:" + right["user"],
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def main():
    brokers, ca, user, password = sys.argv[1:]
    wanted = json.load(sys.stdin)
    admin = AdminClient(
        {
            "bootstrap.servers": brokers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": ca,
        }
    )
    told = []
    if users := wanted.get("users"):
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        told += admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(name, info, word.encode()) for name, word in users.items()]
        ).values()
    if rights := wanted.get("grant"):
        told += admin.create_acls([binding(AclBinding, right) for right in rights]).values()
    for one in told:
        one.result(timeout=30)
    if rights := wanted.get("take"):
        filters = [binding(AclBindingFilter, right) for right in rights]
        for right, one in admin.delete_acls(filters).items():
            assert one.result(timeout=30), f"there was no such right: {right}"


main()
