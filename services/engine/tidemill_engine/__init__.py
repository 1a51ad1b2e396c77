"""The engine of both workers: block pool, scheduler, model runner, sampler."""
