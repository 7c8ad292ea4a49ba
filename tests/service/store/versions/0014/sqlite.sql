BEGIN TRANSACTION;
CREATE TABLE cluster_shares (
	job_id VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	cluster VARCHAR(255) NOT NULL, 
	num_groups INTEGER NOT NULL, 
	group_share DOUBLE NOT NULL, 
	wants_since DATETIME, 
	short_of JSON NOT NULL, 
	CONSTRAINT pk_cluster_shares PRIMARY KEY (job_id), 
	CONSTRAINT fk_cluster_shares_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "cluster_shares" VALUES('job_01M83NWV8VYNS75VFHQ81T8K7A',1,'10.0.0.1:6379',1,0.25,NULL,'[]');
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	data JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT fk_events_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "events" VALUES(1,'job_01M83NWV107PJ1N0GQ5KA3Q718','job.state','{"state": "queued", "failure": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(2,'job_01M83NWV107PJ1N0GQ5KA3Q718','job.state','{"state": "running", "failure": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(3,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(4,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(5,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 0, "step": 10, "value": 3.6}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(6,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 0, "step": 20, "value": 1.8}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(7,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 0, "step": 30, "value": 1.2}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(8,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 0, "step": 40, "value": 0.9}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(9,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.9}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(10,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 1, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(11,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 1, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(12,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 1, "step": 10, "value": 2.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(13,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 1, "step": 20, "value": 1.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(14,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 1, "step": 30, "value": 0.6666666666666666}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(15,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 1, "step": 40, "value": 0.5}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(16,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 1, "phase": "search", "confirms": null, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.5}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(17,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 2, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(18,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 2, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(19,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 2, "step": 10, "value": 3.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(20,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 2, "phase": "search", "confirms": null, "forked_from": null, "state": "pruned", "requested": null, "reason": null, "step": 10, "value": 3.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(21,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 3, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(22,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 3, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(23,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 3, "phase": "search", "confirms": null, "forked_from": null, "state": "failed", "requested": null, "reason": "store_failed", "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(24,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 4, "phase": "baseline", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(25,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 4, "phase": "baseline", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(26,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 4, "step": 10, "value": 2.8}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(27,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 4, "step": 20, "value": 1.4}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(28,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 4, "step": 30, "value": 0.9333333333333333}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(29,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 4, "step": 40, "value": 0.7}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(30,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 4, "phase": "baseline", "confirms": null, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.7}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(31,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 5, "phase": "confirmation", "confirms": 1, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(32,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 5, "phase": "confirmation", "confirms": 1, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(33,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 5, "step": 10, "value": 2.2}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(34,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 5, "step": 20, "value": 1.1}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(35,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 5, "step": 30, "value": 0.7333333333333333}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(36,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 5, "step": 40, "value": 0.55}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(37,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 5, "phase": "confirmation", "confirms": 1, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.55}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(38,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 6, "phase": "confirmation", "confirms": 4, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(39,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 6, "phase": "confirmation", "confirms": 4, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(40,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 6, "step": 10, "value": 3.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(41,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 6, "step": 20, "value": 1.5}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(42,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 6, "step": 30, "value": 1.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(43,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.measured','{"number": 6, "step": 40, "value": 0.75}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(44,'job_01M83NWV107PJ1N0GQ5KA3Q718','trial.state','{"number": 6, "phase": "confirmation", "confirms": 4, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.75}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(45,'job_01M83NWV107PJ1N0GQ5KA3Q718','job.recommendation','{}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(46,'job_01M83NWV107PJ1N0GQ5KA3Q718','job.state','{"state": "succeeded", "failure": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(47,'job_01M83NWV8VYNS75VFHQ81T8K7A','job.state','{"state": "queued", "failure": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(48,'job_01M83NWV8VYNS75VFHQ81T8K7A','job.state','{"state": "running", "failure": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(49,'job_01M83NWV8VYNS75VFHQ81T8K7A','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(50,'job_01M83NWV8VYNS75VFHQ81T8K7A','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(51,'job_01M83NWV8VYNS75VFHQ81T8K7A','trial.measured','{"number": 0, "step": 10, "value": 2.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(52,'job_01M83NWV9NRNSJJ20BWY4FCFTG','job.state','{"state": "queued", "failure": null}','2026-03-01 12:00:00.000000');
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	tags JSON NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	failure VARCHAR, 
	specification JSON NOT NULL, 
	model VARCHAR(200) NOT NULL, 
	num_trials INTEGER NOT NULL, 
	num_steps INTEGER NOT NULL, 
	idempotency_key VARCHAR(255), 
	request_digest VARCHAR(64), 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	lease_worker_id VARCHAR(40), 
	lease_expires_at DATETIME, 
	attempt INTEGER NOT NULL, 
	crashes INTEGER NOT NULL, 
	not_before DATETIME, running_seconds DOUBLE DEFAULT '0' NOT NULL, reopened_at DATETIME, running_since DATETIME, requested VARCHAR(20), disk_bytes BIGINT, priority INTEGER DEFAULT '0' NOT NULL, waiting_since DATETIME, waiting_for VARCHAR, parameter_groups JSON, objectives JSON DEFAULT '[]' NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_lease_worker_id_workers FOREIGN KEY(lease_worker_id) REFERENCES workers (id), 
	CONSTRAINT uq_jobs_idempotency_key UNIQUE (idempotency_key)
);
INSERT INTO "jobs" VALUES('job_01M83NWV107PJ1N0GQ5KA3Q718','digits-mlp','{}','succeeded',NULL,'{"workload": {"name": "digits-mlp", "options": {}}, "search_space": "shampoo", "objectives": [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}], "target": null, "constraints": [], "budget": {"num_trials": 5, "extra_search_trials": 0, "extra_baseline_trials": 0, "wall_clock_seconds": null, "device_hours": null, "patience": null}, "training": {"accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2, "num_steps": 40, "batch_size": null, "report_timeout_seconds": 7200.0}, "resources": {"workers_per_trial": 1, "cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "memory_per_worker": null, "custom_resources": {}, "parallel_trials": null}, "sampler": {"name": null, "seed": 0}, "pruner": {"name": null, "min_steps": null, "reduction_factor": null, "population": null, "interval": null}, "pinned": [], "baseline": {"search_space": "adamw", "budget_share": 0.25, "pinned": []}, "confirmation": {"top_k": 1, "num_seeds": 2}}','digits-mlp',7,40,NULL,'54717ca125c48d3af79d78279d0b5c3ee1b8ba0a730ab6221da4982f9b826839','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,NULL,1,0,NULL,0.0,NULL,NULL,NULL,NULL,0,NULL,NULL,'[]','[{"metric": "validation_loss", "direction": "minimize"}, {"metric": "validation_accuracy", "direction": "maximize"}]');
INSERT INTO "jobs" VALUES('job_01M83NWV8VYNS75VFHQ81T8K7A','digits-mlp','{}','running',NULL,'{"workload": {"name": "digits-mlp", "options": {}}, "search_space": "shampoo", "objectives": [], "target": null, "constraints": [], "budget": {"num_trials": 4, "extra_search_trials": 0, "extra_baseline_trials": 0, "wall_clock_seconds": null, "device_hours": null, "patience": null}, "training": {"accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2, "num_steps": 40, "batch_size": null, "report_timeout_seconds": 7200.0}, "resources": {"workers_per_trial": 1, "cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "memory_per_worker": null, "custom_resources": {}, "parallel_trials": null}, "sampler": {"name": null, "seed": 0}, "pruner": {"name": null, "min_steps": null, "reduction_factor": null, "population": null, "interval": null}, "pinned": [], "baseline": null, "confirmation": null}','digits-mlp',4,40,NULL,'ea58159fbfa3b0cd3ebd78bb7b5c3f97fbe423da82f712155ca6b4f685dff8c8','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,'worker_01M83NWV916FG7SVFQRXE03HYM','2026-03-01 12:00:30.000000',1,0,NULL,0.0,NULL,'2026-03-01 12:00:00.000000',NULL,NULL,0,NULL,NULL,'[]','[{"metric": "validation_loss", "direction": "minimize"}]');
INSERT INTO "jobs" VALUES('job_01M83NWV9NRNSJJ20BWY4FCFTG','digits-mlp','{}','queued',NULL,'{"workload": {"name": "digits-mlp", "options": {}}, "search_space": "shampoo", "objectives": [], "target": null, "constraints": [], "budget": {"num_trials": 4, "extra_search_trials": 0, "extra_baseline_trials": 0, "wall_clock_seconds": null, "device_hours": null, "patience": null}, "training": {"accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2, "num_steps": 40, "batch_size": null, "report_timeout_seconds": 7200.0}, "resources": {"workers_per_trial": 1, "cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "memory_per_worker": null, "custom_resources": {}, "parallel_trials": null}, "sampler": {"name": null, "seed": 0}, "pruner": {"name": null, "min_steps": null, "reduction_factor": null, "population": null, "interval": null}, "pinned": [], "baseline": {"search_space": "adamw", "budget_share": 0.25, "pinned": []}, "confirmation": null}','digits-mlp',4,40,NULL,'e023e618c4ca10b94ee717f562571fbfe6356aa0c732bdde70ad956a36216f93','2026-03-01 12:00:00.000000',NULL,NULL,NULL,NULL,0,0,NULL,0.0,NULL,NULL,NULL,NULL,0,'2026-03-01 12:00:00.000000',NULL,'[]','[{"metric": "validation_loss", "direction": "minimize"}]');
CREATE TABLE measurements (
	trial_id VARCHAR(40) NOT NULL, 
	step INTEGER NOT NULL, 
	epoch DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	metrics JSON NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	CONSTRAINT pk_measurements PRIMARY KEY (trial_id, step), 
	CONSTRAINT fk_measurements_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id) ON DELETE CASCADE
);
INSERT INTO "measurements" VALUES('trial_01M83NWV33CAS9A19VBXA18Q75',10,1.0,0.1,'{"train_loss": 3.6, "validation_loss": 3.6, "validation_accuracy": 0.2173913043478261}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV33CAS9A19VBXA18Q75',20,2.0,0.2,'{"train_loss": 1.8, "validation_loss": 1.8, "validation_accuracy": 0.35714285714285715}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV33CAS9A19VBXA18Q75',30,3.0,0.3,'{"train_loss": 1.2, "validation_loss": 1.2, "validation_accuracy": 0.45454545454545453}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV33CAS9A19VBXA18Q75',40,4.0,0.4,'{"train_loss": 0.9, "validation_loss": 0.9, "validation_accuracy": 0.5263157894736842}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV4GBE64T7D7PX9315P4',10,1.0,0.1,'{"train_loss": 2.0, "validation_loss": 2.0, "validation_accuracy": 0.3333333333333333}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV4GBE64T7D7PX9315P4',20,2.0,0.2,'{"train_loss": 1.0, "validation_loss": 1.0, "validation_accuracy": 0.5}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV4GBE64T7D7PX9315P4',30,3.0,0.3,'{"train_loss": 0.6666666666666666, "validation_loss": 0.6666666666666666, "validation_accuracy": 0.6000000000000001}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV4GBE64T7D7PX9315P4',40,4.0,0.4,'{"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV5EX3WKFJYR8RYEZTCZ',10,1.0,0.1,'{"train_loss": 3.0, "validation_loss": 3.0, "validation_accuracy": 0.25}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV67V52D6YPT2QV507KM',10,1.0,0.1,'{"train_loss": 2.8, "validation_loss": 2.8, "validation_accuracy": 0.2631578947368421}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV67V52D6YPT2QV507KM',20,2.0,0.2,'{"train_loss": 1.4, "validation_loss": 1.4, "validation_accuracy": 0.4166666666666667}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV67V52D6YPT2QV507KM',30,3.0,0.3,'{"train_loss": 0.9333333333333333, "validation_loss": 0.9333333333333333, "validation_accuracy": 0.5172413793103449}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV67V52D6YPT2QV507KM',40,4.0,0.4,'{"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV6YKS4MXNTZ0E2YATNV',10,1.0,0.1,'{"train_loss": 2.2, "validation_loss": 2.2, "validation_accuracy": 0.3125}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV6YKS4MXNTZ0E2YATNV',20,2.0,0.2,'{"train_loss": 1.1, "validation_loss": 1.1, "validation_accuracy": 0.47619047619047616}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV6YKS4MXNTZ0E2YATNV',30,3.0,0.3,'{"train_loss": 0.7333333333333333, "validation_loss": 0.7333333333333333, "validation_accuracy": 0.5769230769230769}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV6YKS4MXNTZ0E2YATNV',40,4.0,0.4,'{"train_loss": 0.55, "validation_loss": 0.55, "validation_accuracy": 0.6451612903225806}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV7JQYZ2E30J25176BZ1',10,1.0,0.1,'{"train_loss": 3.0, "validation_loss": 3.0, "validation_accuracy": 0.25}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV7JQYZ2E30J25176BZ1',20,2.0,0.2,'{"train_loss": 1.5, "validation_loss": 1.5, "validation_accuracy": 0.4}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV7JQYZ2E30J25176BZ1',30,3.0,0.3,'{"train_loss": 1.0, "validation_loss": 1.0, "validation_accuracy": 0.5}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV7JQYZ2E30J25176BZ1',40,4.0,0.4,'{"train_loss": 0.75, "validation_loss": 0.75, "validation_accuracy": 0.5714285714285714}','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M83NWV969B5KFPY814DSQ0ZG',10,1.0,0.1,'{"train_loss": 2.0, "validation_loss": 2.0, "validation_accuracy": 0.3333333333333333}','2026-03-01 12:00:00.000000');
CREATE TABLE recommendations (
	id VARCHAR(40) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	model VARCHAR(200) NOT NULL, 
	optimizer VARCHAR(40) NOT NULL, 
	content JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_recommendations PRIMARY KEY (id), 
	CONSTRAINT fk_recommendations_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_recommendations_job_id UNIQUE (job_id)
);
INSERT INTO "recommendations" VALUES('rec_01M83NWV8K5VFDMCY7BQKQ1APV','job_01M83NWV107PJ1N0GQ5KA3Q718','digits-mlp','shampoo','{"workload": "digits-mlp", "optimizer": "shampoo", "config": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "horizon": 1.0}, "training": {"num_steps": 40, "batch_size": 128, "gradient_clip_norm": null, "accumulation_steps": 1, "precision": "float32", "averaging": null, "compression": null}, "workload_options": {}, "parameter_groups": [], "evidence": {"metric": "validation_loss", "direction": "minimize", "best": {"number": 1, "value": 0.5, "config": {"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}, "metrics": {"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}, "num_steps": 40, "seconds": 0.4, "lineage": []}, "baseline": {"number": 4, "value": 0.7, "config": {"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "adamw", "arguments": {"eps": 1e-08, "lr": 0.0015, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}, "metrics": {"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}, "num_steps": 40, "seconds": 0.4, "lineage": []}, "verdict": "better", "equal_within": 0.005, "improvement": 0.28571428571428564, "reached_baseline": {"step": 30, "seconds": 0.3, "baseline_step": 40, "baseline_seconds": 0.4, "step_ratio": 1.3333333333333333, "seconds_ratio": 1.3333333333333335}, "num_trials": {"baseline": {"completed": 1}, "confirmation": {"completed": 2}, "search": {"completed": 2, "failed (store_failed)": 1, "pruned": 1}}, "seeds": [0], "caveats": ["Each config was trained once, with one seed, and the best of many is partly luck: repeat both winners with fresh seeds before relying on the difference.", "The search had 4 trials and the baseline 1, which favours the search.", "The confirmation did not finish: 1 of 2 new seeds were completed by all 2 configs."], "confirmation": {"seeds": [1001], "candidates": [{"number": 1, "found_value": 0.5, "results": [{"seed": 1001, "number": 5, "ending": "completed", "value": 0.55}], "mean": null, "standard_deviation": null, "further_low": null, "further_high": null}], "baseline": {"number": 4, "found_value": 0.7, "results": [{"seed": 1001, "number": 6, "ending": "completed", "value": 0.75}], "mean": null, "standard_deviation": null, "further_low": null, "further_high": null}, "confidence": 0.95, "improvement_low": null, "improvement_high": null}, "front": [{"number": 1, "phase": "search", "values": {"validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}}], "verdict_caveats": []}}','2026-03-01 12:00:00.000000');
CREATE TABLE shampoo_tuner_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT shampoo_tuner_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "shampoo_tuner_version" VALUES('0014');
CREATE TABLE trials (
	id VARCHAR(40) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	number INTEGER NOT NULL, 
	phase VARCHAR(20) NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	reason VARCHAR(20), 
	detail VARCHAR, 
	parameters JSON NOT NULL, 
	config JSON NOT NULL, 
	runs INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	seconds DOUBLE NOT NULL, 
	value DOUBLE, 
	metrics JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, spent_seconds DOUBLE DEFAULT '0' NOT NULL, requested VARCHAR(20), spared BOOLEAN DEFAULT 0 NOT NULL, losses INTEGER DEFAULT '0' NOT NULL, memory_failures INTEGER DEFAULT '0' NOT NULL, confirms INTEGER, proposed BOOLEAN DEFAULT 0 NOT NULL, idempotency_key VARCHAR(255), request_digest VARCHAR(64), forked_from INTEGER, forked_at_step INTEGER, 
	CONSTRAINT pk_trials PRIMARY KEY (id), 
	CONSTRAINT fk_trials_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_trials_job_id_number UNIQUE (job_id, number)
);
INSERT INTO "trials" VALUES('trial_01M83NWV33CAS9A19VBXA18Q75','job_01M83NWV107PJ1N0GQ5KA3Q718',0,'search','completed',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.9,'{"train_loss": 0.9, "validation_loss": 0.9, "validation_accuracy": 0.5263157894736842}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV4GBE64T7D7PX9315P4','job_01M83NWV107PJ1N0GQ5KA3Q718',1,'search','completed',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.5,'{"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV5EX3WKFJYR8RYEZTCZ','job_01M83NWV107PJ1N0GQ5KA3Q718',2,'search','pruned',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,10,0.1,3.0,'{"train_loss": 3.0, "validation_loss": 3.0, "validation_accuracy": 0.25}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.1,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV5YVCEG8VQZ4HDB2D9B','job_01M83NWV107PJ1N0GQ5KA3Q718',3,'search','failed','store_failed','lost 4 times; last: the store of checkpoints failed: s3://bucket cannot be listed','{"lr": 0.0015, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,0,0.0,NULL,'{}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.0,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV67V52D6YPT2QV507KM','job_01M83NWV107PJ1N0GQ5KA3Q718',4,'baseline','completed',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.9, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.999}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "adamw", "arguments": {"eps": 1e-08, "lr": 0.0015, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.7,'{"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV6YKS4MXNTZ0E2YATNV','job_01M83NWV107PJ1N0GQ5KA3Q718',5,'confirmation','completed',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 1001, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.55,'{"train_loss": 0.55, "validation_loss": 0.55, "validation_accuracy": 0.6451612903225806}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,1,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV7JQYZ2E30J25176BZ1','job_01M83NWV107PJ1N0GQ5KA3Q718',6,'confirmation','completed',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.9, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.999}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "adamw", "arguments": {"eps": 1e-08, "lr": 0.0015, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 1001, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.75,'{"train_loss": 0.75, "validation_loss": 0.75, "validation_accuracy": 0.5714285714285714}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,4,0,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M83NWV969B5KFPY814DSQ0ZG','job_01M83NWV8VYNS75VFHQ81T8K7A',0,'search','running',NULL,NULL,'{"lr": 0.0015, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.0015, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,10,0.1,2.0,'{"train_loss": 2.0, "validation_loss": 2.0, "validation_accuracy": 0.3333333333333333}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,0.1,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL);
CREATE TABLE workers (
	id VARCHAR(40) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (id)
);
INSERT INTO "workers" VALUES('worker_01M83NWV1YSSMK8AK04MMQX049','here',1,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
INSERT INTO "workers" VALUES('worker_01M83NWV916FG7SVFQRXE03HYM','here',1,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE INDEX ix_jobs_model ON jobs (model);
CREATE INDEX ix_jobs_state_created_at ON jobs (state, created_at);
CREATE INDEX ix_events_job_id_id ON events (job_id, id);
CREATE INDEX ix_recommendations_model ON recommendations (model);
CREATE INDEX ix_trials_requested ON trials (job_id) WHERE requested IS NOT NULL;
CREATE UNIQUE INDEX ix_trials_job_id_idempotency_key ON trials (job_id, idempotency_key);
CREATE INDEX ix_trials_progress ON trials (job_id, phase, state, value, number, spent_seconds);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',52);
COMMIT;
