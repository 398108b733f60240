"""The job as a DBOS workflow of ten steps, on PostgreSQL."""

import asyncio
import os

import uvloop
from dbos import DBOS, DBOSConfig, SetWorkflowID

import job

config: DBOSConfig = {
    "name": "job",
    "system_database_url": os.environ["JOB_DATABASE"],
    "application_version": "v1",
    "log_level": "ERROR",
    "run_admin_server": False,
    "sys_db_pool_size": 20,
}
DBOS(config=config)


@DBOS.step()
async def step(run: str, index: int) -> str:
    return await job.step(run, index)


@DBOS.workflow()
async def workflow(run: str) -> int:
    return sum([len(await step(run, index)) for index in range(job.STEPS)])


async def start(run: str) -> int:
    with SetWorkflowID(run):
        return await workflow(run)


async def main() -> None:
    DBOS.launch()
    await job.serve(start)
    await asyncio.Event().wait()


uvloop.run(main())
