"""What docs/clients.md promises to every client, tried with generated Python code against a real server."""

import json
import os
import time
import unittest
import uuid

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from signalbox.v1 import run_service_pb2 as pb
from signalbox.v1 import run_service_pb2_grpc as service

RUNS = service.RunServiceStub(grpc.insecure_channel(os.environ["SIGNALBOX_TARGET"]))
NAP = {"rootAgentId": "ref.drafting", "plan": [{"stepId": "nap", "kind": "wait", "seconds": 0}]}
GATED = {"rootAgentId": "ref.drafting", "plan": [{"stepId": "gate", "kind": "approval", "prompt": "Go on?"}]}


def submit(plan, run_id=None):
    request = pb.SubmitRunRequest(run_id=run_id or str(uuid.uuid4()), submission_json=json.dumps(plan).encode())
    return RUNS.SubmitRun(request, timeout=10)


def events(run_id, after=0):
    stream = RUNS.WatchRun(pb.WatchRunRequest(run_id=run_id, after_seq=after), timeout=20)
    return [item.event for item in stream if item.WhichOneof("item") == "event"]


def reason(error):
    for detail in rpc_status.from_call(error).details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info.reason
    return None


class Contract(unittest.TestCase):
    def test_a_run_is_submitted_followed_and_read(self):
        run = submit(NAP)
        seen = events(run.run_id)
        self.assertEqual([event.seq for event in seen], list(range(1, len(seen) + 1)))
        self.assertEqual((seen[0].kind, seen[-1].kind), ("run-submitted", "run-closed"))
        self.assertEqual(RUNS.GetRun(pb.GetRunRequest(run_id=run.run_id)).run.status, "completed")

    def test_a_cursor_goes_on_behind_what_was_seen(self):
        run = submit(NAP)
        whole = [event.hash for event in events(run.run_id)]
        self.assertEqual([event.hash for event in events(run.run_id, after=2)], whole[2:])

    def test_saying_it_twice_is_one_run_and_something_else_is_refused(self):
        run_id = str(uuid.uuid4())
        self.assertFalse(submit(NAP, run_id).replayed)
        self.assertTrue(submit(NAP, run_id).replayed)
        with self.assertRaises(grpc.RpcError) as refused:
            submit(GATED, run_id)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.ALREADY_EXISTS)
        self.assertEqual(reason(refused.exception), "run_id_conflict")

    def test_a_question_is_found_and_answered(self):
        run = submit(GATED)
        deadline = time.monotonic() + 20
        question = None
        while question is None and time.monotonic() < deadline:
            listed = RUNS.ListApprovals(pb.ListApprovalsRequest()).approvals
            question = next((asked for asked in listed if asked.run_id == run.run_id), None)
        decision = pb.DecideApprovalRequest(
            approval_id=question.approval_id, decision=pb.APPROVAL_DECISION_APPROVE, reason="read it",
            subject_digest=question.subject_digest, command_id=str(uuid.uuid4()))
        self.assertEqual(RUNS.DecideApproval(decision).run_id, run.run_id)
        self.assertEqual(events(run.run_id)[-1].kind, "run-closed")

    def test_a_control_steers_and_a_run_that_is_not_there_is_refused_by_its_code(self):
        run = submit({"rootAgentId": "ref.drafting", "plan": [{"stepId": "nap", "kind": "wait", "seconds": 600}]})
        control = pb.ControlRunRequest(run_id=run.run_id, command_id=str(uuid.uuid4()), reason="enough", kill=pb.Kill())
        self.assertEqual(RUNS.ControlRun(control).status, "killed")
        with self.assertRaises(grpc.RpcError) as refused:
            RUNS.GetRun(pb.GetRunRequest(run_id=str(uuid.uuid4())))
        self.assertEqual(reason(refused.exception), "no-such-run")


if __name__ == "__main__":
    unittest.main()
