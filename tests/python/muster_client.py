"""A client of the master that shares no code with Muster: only its protocol files, or not even these.

    muster_client.py --target unix:/run/muster/master.sock|IP:PORT --stubs proto|reflection
                     [--proto-dir DIR] [--cert FILE --key FILE --ca FILE]
                     add INSTANCE NODE | deny INSTANCE NODE

`add` submits a new instance, follows its job and prints one JSON object: the kinds of events in their order, and the end.
`deny` does the same for an operation that a script denies, and prints the structure of the denial.
"""

import argparse
import json
import sys
import tempfile
import uuid
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# The name that every master's certificate carries besides its identity, whatever address it is reached by.
MASTER_NAME = "muster-master"
CALL_LIMIT_S = 60


def channel_of(args):
    """A channel to the master: by its local socket, or by TLS with a certificate of our own."""
    if args.target.startswith("unix:"):
        # Left to itself, this library sends the socket's path as the host's name, in a form that HTTP does not know.
        return grpc.insecure_channel(args.target, [("grpc.default_authority", "localhost")])
    credentials = grpc.ssl_channel_credentials(
        root_certificates=Path(args.ca).read_bytes(),
        private_key=Path(args.key).read_bytes(),
        certificate_chain=Path(args.cert).read_bytes(),
    )
    return grpc.secure_channel(args.target, credentials, [("grpc.ssl_target_name_override", MASTER_NAME)])


def pool_from_proto(proto_dir):
    """Compiles the protocol files to descriptors, as any user of them would."""
    from grpc_tools import protoc

    root = Path(proto_dir)
    files = sorted(str(path.relative_to(root)) for path in root.glob("muster/v1/*.proto"))
    with tempfile.TemporaryDirectory() as out:
        whole = Path(out) / "all.bin"
        command = ["protoc", f"-I{root}", "--include_imports", f"--descriptor_set_out={whole}", *files]
        if protoc.main(command) != 0:
            sys.exit("the protocol files do not compile")
        parsed = descriptor_pb2.FileDescriptorSet.FromString(whole.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in parsed.file:
        pool.Add(file)
    return pool


def pool_from_reflection(channel):
    """Asks the server itself for its descriptors."""
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    missing = {"muster.v1.OperationService", "muster.v1.JobService", "grpc.health.v1.Health"} - services
    if missing:
        sys.exit(f"reflection does not list {sorted(missing)}")
    return descriptor_pool.DescriptorPool(database)


def generated_stubs(proto_dir, out):
    """Makes Python modules from the protocol files and imports them."""
    from grpc_tools import protoc

    root = Path(proto_dir)
    files = sorted(str(path.relative_to(root)) for path in root.glob("muster/v1/*.proto"))
    if protoc.main(["protoc", f"-I{root}", f"--python_out={out}", f"--grpc_python_out={out}", *files]) != 0:
        sys.exit("the protocol files do not compile")
    sys.path.insert(0, str(out))


class Generated:
    """Calls through generated modules."""

    def __init__(self, channel, proto_dir, out):
        generated_stubs(proto_dir, out)
        from muster.v1 import job_pb2, job_pb2_grpc, operation_pb2, operation_pb2_grpc

        self.submit_request = operation_pb2.SubmitRequest
        self.follow_request = job_pb2.FollowJobRequest
        self.submit = operation_pb2_grpc.OperationServiceStub(channel).Submit
        self.follow = job_pb2_grpc.JobServiceStub(channel).FollowJob


class Dynamic:
    """Calls through descriptors that were learnt at run time."""

    def __init__(self, channel, pool):
        def message(name):
            return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"muster.v1.{name}"))

        self.submit_request = message("SubmitRequest")
        self.follow_request = message("FollowJobRequest")
        self.submit = channel.unary_unary(
            "/muster.v1.OperationService/Submit",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=message("SubmitResponse").FromString,
        )
        self.follow = channel.unary_stream(
            "/muster.v1.JobService/FollowJob",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=message("JobEvent").FromString,
        )


def instance_add(calls, name, node):
    """The request for a small instance."""
    request = calls.submit_request(reason="asked by Python", request_id=str(uuid.uuid4()))
    add = request.operation.instance_add
    add.name, add.primary, add.os = name, node, "none"
    add.disk_template, add.disk_size_mib = "file", 16
    add.memory_mib, add.vcpus, add.no_start = 64, 1, True
    return request


def followed(calls, request):
    """Submits, follows to the end, and gives the kinds of events and the ended job."""
    job_id = calls.submit(request, timeout=CALL_LIMIT_S).job_id
    kinds, job = [], None
    for event in calls.follow(calls.follow_request(id=job_id), timeout=CALL_LIMIT_S):
        kinds.append(event.WhichOneof("event"))
        if kinds[-1] == "done":
            job = event.done
    if job is None:
        sys.exit("the stream ended without the ended job")
    return job_id, kinds, job


def enum_name(message, field):
    """The name of an enumeration's value in a message."""
    value = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(message, field)]
    return value.name


def objection_of(objection):
    """One script's objection as plain data."""
    outcome = objection.script.outcome
    kind = outcome.WhichOneof("kind")
    return {
        "node": objection.node,
        "script": objection.script.name,
        "outcome": kind,
        "code": outcome.failed_code if kind == "failed_code" else None,
        "stdout": objection.script.stdout.head.decode(),
        "stderr": objection.script.stderr.head.decode(),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--stubs", choices=["generated", "proto", "reflection"], required=True)
    parser.add_argument("--proto-dir")
    for name in ["cert", "key", "ca"]:
        parser.add_argument(f"--{name}")
    parser.add_argument("verb", choices=["add", "deny"])
    parser.add_argument("instance")
    parser.add_argument("node")
    args = parser.parse_args()
    with channel_of(args) as channel, tempfile.TemporaryDirectory() as out:
        if args.stubs == "generated":
            calls = Generated(channel, args.proto_dir, out)
        elif args.stubs == "proto":
            calls = Dynamic(channel, pool_from_proto(args.proto_dir))
        else:
            calls = Dynamic(channel, pool_from_reflection(channel))
        job_id, kinds, job = followed(calls, instance_add(calls, args.instance, args.node))
        result = {"job_id": job_id, "events": kinds, "status": enum_name(job, "status")}
        if args.verb == "deny":
            result["kind"] = enum_name(job.error, "kind")
            result["objections"] = [objection_of(objection) for objection in job.error.objections]
        print(json.dumps(result))


if __name__ == "__main__":
    main()
