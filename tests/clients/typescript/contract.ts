// What docs/clients.md promises to every client, tried with typed TypeScript against a real server.

import assert from "node:assert/strict";
import test from "node:test";
import { credentials, loadPackageDefinition, status, type ServiceError } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType } from "./types/run_service";
import type { RunEvent } from "./types/signalbox/v1/RunEvent";

const definition = loadSync("signalbox/v1/run_service.proto", { includeDirs: ["proto"], longs: Number, oneofs: true });
const { signalbox } = loadPackageDefinition(definition) as unknown as ProtoGrpcType;
const runs = new signalbox.v1.RunService(process.env.SIGNALBOX_TARGET!, credentials.createInsecure());

const nap = (seconds: number) => ({ rootAgentId: "ref.drafting", plan: [{ stepId: "nap", kind: "wait", seconds }] });

function answer<T>(call: (done: (error: ServiceError | null, answer?: T) => void) => void): Promise<T> {
  return new Promise((resolve, reject) => call((error, answer) => (error ? reject(error) : resolve(answer!))));
}

async function submit(plan: object, runId: string = crypto.randomUUID()) {
  const request = { runId, submissionJson: Buffer.from(JSON.stringify(plan)) };
  return answer<{ runId?: string; replayed?: boolean }>((done) => runs.submitRun(request, done as never));
}

function events(runId: string, afterSeq = 0): Promise<RunEvent[]> {
  return new Promise((resolve, reject) => {
    const seen: RunEvent[] = [];
    const watch = runs.watchRun({ runId, afterSeq });
    watch.on("data", (item) => item.event && seen.push(item.event));
    watch.on("error", reject);
    watch.on("end", () => resolve(seen));
  });
}

test("a run is submitted, followed and read, and a cursor goes on behind what was seen", async () => {
  const run = await submit(nap(0));
  const seen = await events(run.runId!);
  assert.deepEqual(seen.map((event) => event.seq), seen.map((_, index) => index + 1));
  assert.equal(seen.at(-1)!.kind, "run-closed");
  const rest = await events(run.runId!, 2);
  assert.deepEqual(rest.map((event) => event.hash), seen.slice(2).map((event) => event.hash));
  const got = await answer<{ run?: { status?: string } | null }>((done) => runs.getRun({ runId: run.runId }, done as never));
  assert.equal(got.run!.status, "completed");
});

test("saying it twice is one run, and something else under its id is refused by its code", async () => {
  const runId = crypto.randomUUID();
  assert.equal((await submit(nap(0), runId)).replayed ?? false, false);
  assert.equal((await submit(nap(0), runId)).replayed, true);
  await assert.rejects(submit(nap(1), runId), (error: ServiceError) => {
    assert.equal(error.code, status.ALREADY_EXISTS);
    const details = error.metadata.get("grpc-status-details-bin").map(String).join();
    assert.match(details, /run_id_conflict/);
    return true;
  });
});

test("a control steers", async () => {
  const run = await submit(nap(600));
  const request = { runId: run.runId, commandId: crypto.randomUUID(), reason: "enough", kill: {} };
  const killed = await answer<{ status?: string }>((done) => runs.controlRun(request, done as never));
  assert.equal(killed.status, "killed");
});
