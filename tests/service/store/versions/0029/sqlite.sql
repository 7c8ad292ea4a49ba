BEGIN TRANSACTION;
CREATE TABLE audit_entries (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DATETIME NOT NULL, 
	actor VARCHAR(200), 
	token VARCHAR(16), 
	project VARCHAR(64) NOT NULL, 
	action VARCHAR(60) NOT NULL, 
	target VARCHAR(200) NOT NULL, 
	address VARCHAR(64)
);
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
INSERT INTO "cluster_shares" VALUES('job_01M8FZ9Z66XYDPMTN58SP050YN',1,'10.0.0.1:6379',1,0.25,NULL,'[]');
CREATE TABLE code (
	project VARCHAR(64) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	archive BLOB NOT NULL, 
	stored_bytes BIGINT NOT NULL, 
	num_files INTEGER NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	owner VARCHAR(100), 
	created_at DATETIME NOT NULL, 
	used_at DATETIME NOT NULL, 
	CONSTRAINT pk_code PRIMARY KEY (project, sha256)
);
CREATE TABLE deleted_jobs (
	id VARCHAR(40) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	rank_seconds DOUBLE NOT NULL, 
	deleted_at DATETIME NOT NULL, 
	CONSTRAINT pk_deleted_jobs PRIMARY KEY (id)
);
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	data JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT fk_events_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "events" VALUES(1,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','job.state','{"state": "queued", "failure": null, "lost": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(2,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','job.state','{"state": "running", "failure": null, "lost": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(3,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(4,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(5,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 0, "step": 10, "value": 3.6}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(6,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 0, "step": 20, "value": 1.8}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(7,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 0, "step": 30, "value": 1.2}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(8,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 0, "step": 40, "value": 0.9}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(9,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.9}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(10,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 1, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(11,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 1, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(12,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 1, "step": 10, "value": 2.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(13,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 1, "step": 20, "value": 1.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(14,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 1, "step": 30, "value": 0.6666666666666666}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(15,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 1, "step": 40, "value": 0.5}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(16,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 1, "phase": "search", "confirms": null, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.5}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(17,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 2, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(18,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 2, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(19,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 2, "step": 10, "value": 3.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(20,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 2, "phase": "search", "confirms": null, "forked_from": null, "state": "pruned", "requested": null, "reason": null, "step": 10, "value": 3.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(21,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 3, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(22,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 3, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(23,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 3, "phase": "search", "confirms": null, "forked_from": null, "state": "failed", "requested": null, "reason": "store_failed", "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(24,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 4, "phase": "baseline", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(25,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 4, "phase": "baseline", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(26,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 4, "step": 10, "value": 2.8}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(27,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 4, "step": 20, "value": 1.4}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(28,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 4, "step": 30, "value": 0.9333333333333333}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(29,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 4, "step": 40, "value": 0.7}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(30,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 4, "phase": "baseline", "confirms": null, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.7}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(31,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 5, "phase": "confirmation", "confirms": 1, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(32,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 5, "phase": "confirmation", "confirms": 1, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(33,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 5, "step": 10, "value": 2.2}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(34,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 5, "step": 20, "value": 1.1}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(35,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 5, "step": 30, "value": 0.7333333333333333}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(36,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 5, "step": 40, "value": 0.55}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(37,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 5, "phase": "confirmation", "confirms": 1, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.55}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(38,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 6, "phase": "confirmation", "confirms": 4, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(39,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 6, "phase": "confirmation", "confirms": 4, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(40,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 6, "step": 10, "value": 3.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(41,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 6, "step": 20, "value": 1.5}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(42,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 6, "step": 30, "value": 1.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(43,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.measured','{"number": 6, "step": 40, "value": 0.75}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(44,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','trial.state','{"number": 6, "phase": "confirmation", "confirms": 4, "forked_from": null, "state": "completed", "requested": null, "reason": null, "step": 40, "value": 0.75}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(45,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','job.recommendation','{}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(46,'job_01M8FZ9Z352CVVEAG3WBDAZG8K','job.state','{"state": "succeeded", "failure": null, "lost": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(47,'job_01M8FZ9Z66XYDPMTN58SP050YN','job.state','{"state": "queued", "failure": null, "lost": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(48,'job_01M8FZ9Z66XYDPMTN58SP050YN','job.state','{"state": "running", "failure": null, "lost": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(49,'job_01M8FZ9Z66XYDPMTN58SP050YN','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "queued", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(50,'job_01M8FZ9Z66XYDPMTN58SP050YN','trial.state','{"number": 0, "phase": "search", "confirms": null, "forked_from": null, "state": "running", "requested": null, "reason": null, "step": 0, "value": null}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(51,'job_01M8FZ9Z66XYDPMTN58SP050YN','trial.measured','{"number": 0, "step": 10, "value": 2.0}','2026-03-01 12:00:00.000000');
INSERT INTO "events" VALUES(52,'job_01M8FZ9Z6JNBXTP91AJHTXZH10','job.state','{"state": "queued", "failure": null, "lost": null}','2026-03-01 12:00:00.000000');
CREATE TABLE external_requests (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	number INTEGER, 
	idempotency_key VARCHAR(255) NOT NULL, 
	request_digest VARCHAR(64) NOT NULL, 
	content JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	asked_at DATETIME NOT NULL, 
	answered_at DATETIME, 
	answer JSON, 
	CONSTRAINT fk_external_requests_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE job_insights (
	job_id VARCHAR(40) NOT NULL, 
	content JSON NOT NULL, 
	computed_at DATETIME NOT NULL, 
	CONSTRAINT pk_job_insights PRIMARY KEY (job_id), 
	CONSTRAINT fk_job_insights_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	tags JSON NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	failure VARCHAR, 
	specification JSON NOT NULL, 
	workload VARCHAR(200) NOT NULL, 
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
	not_before DATETIME, running_seconds DOUBLE DEFAULT '0' NOT NULL, reopened_at DATETIME, running_since DATETIME, requested VARCHAR(20), disk_bytes BIGINT, priority INTEGER DEFAULT '0' NOT NULL, waiting_since DATETIME, waiting_for VARCHAR, parameter_groups JSON, objectives JSON DEFAULT '[]' NOT NULL, model VARCHAR(200), project VARCHAR(64) DEFAULT 'default' NOT NULL, owner VARCHAR(100), thinned_at DATETIME, device_hour_price DOUBLE, currency VARCHAR(3), notes TEXT, cloned_from VARCHAR(40), archived_at DATETIME, deleted_at DATETIME, reopened_from VARCHAR(20), cut_off VARCHAR, spent_device_seconds DOUBLE DEFAULT '0' NOT NULL, is_external BOOLEAN DEFAULT 0 NOT NULL, code_sha256 VARCHAR(64), trial_ends INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_lease_worker_id_workers FOREIGN KEY(lease_worker_id) REFERENCES workers (id), 
	CONSTRAINT uq_jobs_idempotency_key UNIQUE (idempotency_key)
);
INSERT INTO "jobs" VALUES('job_01M8FZ9Z352CVVEAG3WBDAZG8K','digits-mlp','{}','succeeded',NULL,'{"workload": {"name": "digits-mlp", "options": {}}, "search_space": "shampoo", "objectives": [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}], "target": null, "constraints": [], "budget": {"num_trials": 5, "extra_search_trials": 0, "wall_clock_seconds": null, "device_hours": null, "cost": null, "patience": null}, "training": {"accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2, "num_steps": 40, "num_examples": null, "num_tokens": null, "evaluate_every_tokens": null, "batch_size": null, "report_timeout_seconds": 7200.0}, "resources": {"workers_per_trial": 1, "cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "memory_per_worker": null, "custom_resources": {}, "parallel_trials": null}, "external": null, "code": null, "trackers": [], "sampler": {"name": null, "options": {}, "seed": 0}, "pruner": {"name": null, "min_steps": null, "reduction_factor": null, "population": null, "interval": null}, "pinned": [], "imported": [], "baselines": [{"search_space": "adamw", "budget_share": 0.25, "pinned": [], "extra_trials": 0}], "currency": null, "confirmation": {"top_k": 1, "num_seeds": 2}, "keep_weights": true}','digits-mlp',7,40,NULL,'10b6c2060574c31bba0f6e9612b48003b89ba63bc0dfc3167bf3d583588bb0bc','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,NULL,1,0,NULL,0.0,NULL,NULL,NULL,NULL,0,NULL,NULL,'[]','[{"metric": "validation_loss", "direction": "minimize"}, {"metric": "validation_accuracy", "direction": "maximize"}]',NULL,'default',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2.1,0,NULL,7);
INSERT INTO "jobs" VALUES('job_01M8FZ9Z66XYDPMTN58SP050YN','digits-mlp','{}','running',NULL,'{"workload": {"name": "digits-mlp", "options": {}}, "search_space": "shampoo", "objectives": [], "target": null, "constraints": [], "budget": {"num_trials": 4, "extra_search_trials": 0, "wall_clock_seconds": null, "device_hours": null, "cost": null, "patience": null}, "training": {"accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2, "num_steps": 40, "num_examples": null, "num_tokens": null, "evaluate_every_tokens": null, "batch_size": null, "report_timeout_seconds": 7200.0}, "resources": {"workers_per_trial": 1, "cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "memory_per_worker": null, "custom_resources": {}, "parallel_trials": null}, "external": null, "code": null, "trackers": [], "sampler": {"name": null, "options": {}, "seed": 0}, "pruner": {"name": null, "min_steps": null, "reduction_factor": null, "population": null, "interval": null}, "pinned": [], "imported": [], "baselines": [], "currency": null, "confirmation": "auto", "keep_weights": true}','digits-mlp',4,40,NULL,'eb0ff04c841f34470ca8bda199e893f9ee4d97839b9d75fc6591f1f1a5d7dbcf','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,'worker_01M8FZ9Z67KXD4KVBKR7QGRR3E','2026-03-01 12:00:30.000000',1,0,NULL,0.0,NULL,'2026-03-01 12:00:00.000000',NULL,NULL,0,NULL,NULL,'[]','[{"metric": "validation_loss", "direction": "minimize"}]',NULL,'default',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0.0,0,NULL,0);
INSERT INTO "jobs" VALUES('job_01M8FZ9Z6JNBXTP91AJHTXZH10','digits-mlp','{}','queued',NULL,'{"workload": {"name": "digits-mlp", "options": {}}, "search_space": "shampoo", "objectives": [], "target": null, "constraints": [], "budget": {"num_trials": 4, "extra_search_trials": 0, "wall_clock_seconds": null, "device_hours": null, "cost": null, "patience": null}, "training": {"accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2, "num_steps": 40, "num_examples": null, "num_tokens": null, "evaluate_every_tokens": null, "batch_size": null, "report_timeout_seconds": 7200.0}, "resources": {"workers_per_trial": 1, "cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "memory_per_worker": null, "custom_resources": {}, "parallel_trials": null}, "external": null, "code": null, "trackers": [], "sampler": {"name": null, "options": {}, "seed": 0}, "pruner": {"name": null, "min_steps": null, "reduction_factor": null, "population": null, "interval": null}, "pinned": [], "imported": [], "baselines": [{"search_space": "adamw", "budget_share": 0.25, "pinned": [], "extra_trials": 0}], "currency": null, "confirmation": "auto", "keep_weights": true}','digits-mlp',4,40,NULL,'b20725bf27c570e8234ed95dc19191f25dffefb28302b769042c848621295138','2026-03-01 12:00:00.000000',NULL,NULL,NULL,NULL,0,0,NULL,0.0,NULL,NULL,NULL,NULL,0,'2026-03-01 12:00:00.000000',NULL,'[]','[{"metric": "validation_loss", "direction": "minimize"}]',NULL,'default',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0.0,0,NULL,0);
CREATE TABLE measurements (
	trial_id VARCHAR(40) NOT NULL, 
	step INTEGER NOT NULL, 
	epoch DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	metric_set_id INTEGER NOT NULL, 
	packed_values BLOB NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	CONSTRAINT pk_measurements PRIMARY KEY (trial_id, step), 
	CONSTRAINT fk_measurements_metric_set_id_metric_sets FOREIGN KEY(metric_set_id) REFERENCES metric_sets (id), 
	CONSTRAINT fk_measurements_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3NTSP374JQR0HT5FF9',10,1.0,0.1,1,X'CDCCCCCCCCCC0C40CDCCCCCCCCCC0C40BEE94D6F7AD3CB3F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3NTSP374JQR0HT5FF9',20,2.0,0.2,1,X'CDCCCCCCCCCCFC3FCDCCCCCCCCCCFC3FB76DDBB66DDBD63F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3NTSP374JQR0HT5FF9',30,3.0,0.3,1,X'333333333333F33F333333333333F33F175D74D14517DD3F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3NTSP374JQR0HT5FF9',40,4.0,0.4,1,X'CDCCCCCCCCCCEC3FCDCCCCCCCCCCEC3F790DE53594D7E03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3YN5QMK663DKGFQDR7',10,1.0,0.1,1,X'00000000000000400000000000000040555555555555D53F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3YN5QMK663DKGFQDR7',20,2.0,0.2,1,X'000000000000F03F000000000000F03F000000000000E03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3YN5QMK663DKGFQDR7',30,3.0,0.3,1,X'555555555555E53F555555555555E53F343333333333E33F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z3YN5QMK663DKGFQDR7',40,4.0,0.4,1,X'000000000000E03F000000000000E03F555555555555E53F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z44D4CC82GPA0888ZB1',10,1.0,0.1,1,X'00000000000008400000000000000840000000000000D03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4ED2V1X52C36DM4F1B',10,1.0,0.1,1,X'66666666666606406666666666660640790DE53594D7D03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4ED2V1X52C36DM4F1B',20,2.0,0.2,1,X'666666666666F63F666666666666F63FABAAAAAAAAAADA3F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4ED2V1X52C36DM4F1B',30,3.0,0.3,1,X'DEDDDDDDDDDDED3FDEDDDDDDDDDDED3FDDD308CB3D8DE03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4ED2V1X52C36DM4F1B',40,4.0,0.4,1,X'666666666666E63F666666666666E63FD3D2D2D2D2D2E23F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4NX2P4PJQXA4B83G0H',10,1.0,0.1,1,X'9A999999999901409A99999999990140000000000000D43F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4NX2P4PJQXA4B83G0H',20,2.0,0.2,1,X'9A9999999999F13F9A9999999999F13F9EE7799EE779DE3F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4NX2P4PJQXA4B83G0H',30,3.0,0.3,1,X'777777777777E73F777777777777E73F622776622776E23F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4NX2P4PJQXA4B83G0H',40,4.0,0.4,1,X'9A9999999999E13F9A9999999999E13FA594524A29A5E43F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4VP22W224MRRE3ECR3',10,1.0,0.1,1,X'00000000000008400000000000000840000000000000D03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4VP22W224MRRE3ECR3',20,2.0,0.2,1,X'000000000000F83F000000000000F83F9A9999999999D93F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4VP22W224MRRE3ECR3',30,3.0,0.3,1,X'000000000000F03F000000000000F03F000000000000E03F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z4VP22W224MRRE3ECR3',40,4.0,0.4,1,X'000000000000E83F000000000000E83F922449922449E23F','2026-03-01 12:00:00.000000');
INSERT INTO "measurements" VALUES('trial_01M8FZ9Z6BFH6PRVDKQZKMB180',10,1.0,0.1,1,X'00000000000000400000000000000040555555555555D53F','2026-03-01 12:00:00.000000');
CREATE TABLE metric_sets (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	names JSON NOT NULL, 
	CONSTRAINT pk_metric_sets PRIMARY KEY (id), 
	CONSTRAINT uq_metric_sets_digest UNIQUE (digest)
);
INSERT INTO "metric_sets" VALUES(1,'7490b39830714efa78403ff6bbac9e7b78b1bbdc5adeee2b1cfc99e1e91a2eef','["train_loss", "validation_loss", "validation_accuracy"]');
CREATE TABLE model_shapes (
	fingerprint VARCHAR(64) NOT NULL, 
	content JSON NOT NULL, 
	CONSTRAINT pk_model_shapes PRIMARY KEY (fingerprint)
);
CREATE TABLE output_chunks (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	output_id INTEGER NOT NULL, 
	stream VARCHAR(10) NOT NULL, 
	source VARCHAR(120) NOT NULL, 
	ends_at BIGINT NOT NULL, 
	omitted_bytes BIGINT NOT NULL, 
	content TEXT NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	CONSTRAINT fk_output_chunks_output_id_rank_outputs FOREIGN KEY(output_id) REFERENCES rank_outputs (id) ON DELETE CASCADE
);
CREATE TABLE projects (
	name VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL, 
	max_running_jobs INTEGER, 
	max_queued_jobs INTEGER, 
	max_device_hours DOUBLE, 
	max_stored_bytes BIGINT, 
	CONSTRAINT pk_projects PRIMARY KEY (name)
);
INSERT INTO "projects" VALUES('default','2026-11-28 02:21:18.793913',NULL,NULL,NULL,NULL);
CREATE TABLE rank_outputs (
	id INTEGER NOT NULL, 
	trial_id VARCHAR(40) NOT NULL, 
	rank INTEGER NOT NULL, 
	stored_bytes BIGINT NOT NULL, 
	CONSTRAINT pk_rank_outputs PRIMARY KEY (id), 
	CONSTRAINT fk_rank_outputs_trial_id_trials FOREIGN KEY(trial_id) REFERENCES trials (id) ON DELETE CASCADE, 
	CONSTRAINT uq_rank_outputs_trial_id_rank UNIQUE (trial_id, rank)
);
CREATE TABLE recommendations (
	id VARCHAR(40) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	workload VARCHAR(200) NOT NULL, 
	optimizer VARCHAR(40) NOT NULL, 
	content JSON NOT NULL, 
	created_at DATETIME NOT NULL, model VARCHAR(200), fingerprint VARCHAR(64), data_digest VARCHAR(64), environment JSON, batch_size INTEGER, num_steps INTEGER, precision VARCHAR(20), device VARCHAR(20), world_size INTEGER, status VARCHAR(20) DEFAULT 'provisional' NOT NULL, objective VARCHAR(200) DEFAULT '' NOT NULL, project VARCHAR(64) DEFAULT 'default' NOT NULL, 
	CONSTRAINT pk_recommendations PRIMARY KEY (id), 
	CONSTRAINT fk_recommendations_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_recommendations_job_id UNIQUE (job_id)
);
INSERT INTO "recommendations" VALUES('rec_01M8FZ9Z60HMMZ97W76CCXWDNW','job_01M8FZ9Z352CVVEAG3WBDAZG8K','digits-mlp','shampoo','{"workload": "digits-mlp", "optimizer": "shampoo", "config": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "horizon": 1.0}, "training": {"num_steps": 40, "batch_size": 128, "gradient_clip_norm": null, "accumulation_steps": 1, "precision": "float32", "averaging": null, "compression": null}, "workload_options": {}, "parameter_groups": [], "evidence": {"metric": "validation_loss", "direction": "minimize", "best": {"number": 1, "value": 0.5, "config": {"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}, "metrics": {"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}, "num_steps": 40, "seconds": 0.4, "lineage": []}, "baseline": {"number": 4, "value": 0.7, "config": {"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "adamw", "arguments": {"eps": 1e-08, "lr": 0.016, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}, "metrics": {"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}, "num_steps": 40, "seconds": 0.4, "lineage": []}, "verdict": "undecided", "equal_within": 0.005, "improvement": 0.28571428571428564, "reached_baseline": {"step": 30.0, "seconds": 0.3, "baseline_step": 40.0, "baseline_seconds": 0.4, "step_ratio": 1.3333333333333333, "seconds_ratio": 1.3333333333333335, "step_ratio_low": null, "step_ratio_high": null, "seconds_ratio_low": null, "seconds_ratio_high": null, "examples_ratio": 1.3333333333333333, "examples_ratio_low": null, "examples_ratio_high": null, "is_first_measurement": false}, "num_trials": {"baseline": {"completed": 1}, "confirmation": {"completed": 2}, "search": {"completed": 2, "failed (store_failed)": 1, "pruned": 1}}, "seeds": [0], "caveats": ["The values are those of the search, of one seed each, and the best of many is partly luck: repeat both winners with fresh seeds before relying on the difference.", "The baseline''s best config lies at the edge of what was searched: betas[1] = 0.999 by the upper bound 0.999. Better values may lie beyond: widen the range in the job''s search space, or `try` such values (--beyond-bounds --phase baseline --optimizer adamw --set betas[1]=...).", "The search had 4 trials and the baseline 1, which favours the search.", "The confirmation did not finish: 0 of 2 seeds were compared."], "confirmation": {"seeds": [], "candidates": [{"number": 1, "found_value": 0.5, "results": [{"seed": 1001, "number": 5, "ending": "completed", "value": 0.55}], "mean": null, "standard_deviation": null, "further_low": null, "further_high": null, "choosing_mean": null, "probability_best": null}], "baseline": {"number": 4, "found_value": 0.7, "results": [{"seed": 1001, "number": 6, "ending": "completed", "value": 0.75}], "mean": null, "standard_deviation": null, "further_low": null, "further_high": null, "choosing_mean": null, "probability_best": null}, "confidence": 0.95, "improvement_low": null, "improvement_high": null, "choosing_seeds": [], "baseline_others": [], "is_settled": false}, "front": [{"number": 1, "phase": "search", "values": {"validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}}], "verdict_caveats": [], "status": "provisional", "alternatives": [], "search_interval": null, "currency": "steps", "comparisons": [{"currency": "steps", "verdict": "undecided", "spent": 40.0, "value": 0.5, "baseline_value": 0.7, "improvement": 0.28571428571428564, "improvement_low": null, "improvement_high": null}, {"currency": "seconds", "verdict": "undecided", "spent": 0.4, "value": 0.5, "baseline_value": 0.7, "improvement": 0.28571428571428564, "improvement_low": null, "improvement_high": null}, {"currency": "examples", "verdict": "undecided", "spent": 5120.0, "value": 0.5, "baseline_value": 0.7, "improvement": 0.28571428571428564, "improvement_low": null, "improvement_high": null}], "baselines": [{"optimizer": "adamw", "number": 4, "value": 0.7, "num_new_seeds": 0, "num_tried": 1}], "side_seconds": {"search": 0.9, "adamw": 0.4}, "transfers": [], "branches": null, "break_even": null}, "code_sha256": null, "ranks": {"number": 1, "device": "cpu", "num_threads": 1}, "keeps_weights": true}','2026-03-01 12:00:00.000000',NULL,NULL,NULL,'null',128,40,'float32','cpu',1,'provisional','validation_loss','default');
CREATE TABLE shampoo_tuner_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT shampoo_tuner_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "shampoo_tuner_version" VALUES('0029');
CREATE TABLE signing_keys (
	name VARCHAR(40) NOT NULL, 
	value VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_signing_keys PRIMARY KEY (name)
);
CREATE TABLE tokens (
	prefix VARCHAR(16) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	scopes JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, 
	last_used_at DATETIME, 
	sessions_ended_at DATETIME, 
	CONSTRAINT pk_tokens PRIMARY KEY (prefix), 
	CONSTRAINT fk_tokens_project_projects FOREIGN KEY(project) REFERENCES projects (name)
);
CREATE TABLE trial_leases (
	job_id VARCHAR(40) NOT NULL, 
	number INTEGER NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	client VARCHAR(200), 
	begun_at DATETIME NOT NULL, 
	begun_seconds DOUBLE NOT NULL, 
	is_released BOOLEAN DEFAULT 0 NOT NULL, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_trial_leases PRIMARY KEY (job_id, number), 
	CONSTRAINT fk_trial_leases_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
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
	finished_at DATETIME, spent_seconds DOUBLE DEFAULT '0' NOT NULL, requested VARCHAR(20), spared BOOLEAN DEFAULT 0 NOT NULL, losses INTEGER DEFAULT '0' NOT NULL, memory_failures INTEGER DEFAULT '0' NOT NULL, confirms INTEGER, proposed BOOLEAN DEFAULT 0 NOT NULL, idempotency_key VARCHAR(255), request_digest VARCHAR(64), forked_from INTEGER, forked_at_step INTEGER, fingerprint VARCHAR(64), data_digest VARCHAR(64), environment JSON, note TEXT, places JSON, 
	CONSTRAINT pk_trials PRIMARY KEY (id), 
	CONSTRAINT fk_trials_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_trials_job_id_number UNIQUE (job_id, number)
);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z3NTSP374JQR0HT5FF9','job_01M8FZ9Z352CVVEAG3WBDAZG8K',0,'search','completed',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.9,'{"train_loss": 0.9, "validation_loss": 0.9, "validation_accuracy": 0.5263157894736842}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z3YN5QMK663DKGFQDR7','job_01M8FZ9Z352CVVEAG3WBDAZG8K',1,'search','completed',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.5,'{"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z44D4CC82GPA0888ZB1','job_01M8FZ9Z352CVVEAG3WBDAZG8K',2,'search','pruned',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,10,0.1,3.0,'{"train_loss": 3.0, "validation_loss": 3.0, "validation_accuracy": 0.25}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.1,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z4AERBWMAQB70ASN8YN','job_01M8FZ9Z352CVVEAG3WBDAZG8K',3,'search','failed','store_failed','lost 4 times; last: the store of checkpoints failed: s3://bucket cannot be listed','{"lr": 0.016, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,0,0.0,NULL,'{}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.0,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z4ED2V1X52C36DM4F1B','job_01M8FZ9Z352CVVEAG3WBDAZG8K',4,'baseline','completed',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.9, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.999}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "adamw", "arguments": {"eps": 1e-08, "lr": 0.016, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.7,'{"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z4NX2P4PJQXA4B83G0H','job_01M8FZ9Z352CVVEAG3WBDAZG8K',5,'confirmation','completed',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 1001, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.55,'{"train_loss": 0.55, "validation_loss": 0.55, "validation_accuracy": 0.6451612903225806}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,1,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z4VP22W224MRRE3ECR3','job_01M8FZ9Z352CVVEAG3WBDAZG8K',6,'confirmation','completed',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.9, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.999}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "adamw", "arguments": {"eps": 1e-08, "lr": 0.016, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 1001, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,40,0.4,0.75,'{"train_loss": 0.75, "validation_loss": 0.75, "validation_accuracy": 0.5714285714285714}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.4,NULL,0,0,0,4,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "trials" VALUES('trial_01M8FZ9Z6BFH6PRVDKQZKMB180','job_01M8FZ9Z66XYDPMTN58SP050YN',0,'search','running',NULL,NULL,'{"lr": 0.016, "betas[0]": 0.95, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05, "betas[1]": 0.995, "epsilon": 1e-06, "precondition_frequency": 10}','{"workload": "digits-mlp", "workload_options": {}, "optimizer": {"name": "shampoo", "arguments": {"grafting": "adam", "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "lr": 0.016, "betas": [0.95, 0.995], "weight_decay": 0.01, "epsilon": 1e-06, "precondition_frequency": 10}}, "schedule": {"warmup_fraction": 0.05, "decay": "cosine", "decay_fraction": null, "horizon": 1.0}, "num_steps": 40, "batch_size": 128, "target": null, "summaries": [], "accumulation_steps": 1, "gradient_clip_norm": null, "seed": 0, "max_loss": 10000.0, "evaluate_every": 10, "evaluate_every_examples": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "precision": "float32", "activation_checkpointing": false, "compile": false, "parallelism": {"mode": "ddp", "shard_size": null}, "compression": null, "averaging": null, "checkpoint_every": null, "keep_checkpoints": 2}',1,10,0.1,2.0,'{"train_loss": 2.0, "validation_loss": 2.0, "validation_accuracy": 0.3333333333333333}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,0.1,NULL,0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE webhook_deliveries (
	id VARCHAR(40) NOT NULL, 
	webhook_id VARCHAR(40) NOT NULL, 
	event_id BIGINT NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	body TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	attempts INTEGER NOT NULL, 
	next_attempt_at DATETIME NOT NULL, 
	status INTEGER, 
	answer TEXT, 
	seconds DOUBLE, 
	created_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id), 
	CONSTRAINT fk_webhook_deliveries_webhook_id_webhooks FOREIGN KEY(webhook_id) REFERENCES webhooks (id) ON DELETE CASCADE
);
CREATE TABLE webhooks (
	id VARCHAR(40) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	job_id VARCHAR(40), 
	url VARCHAR(2000) NOT NULL, 
	kinds JSON NOT NULL, 
	secret VARCHAR(100) NOT NULL, 
	owner VARCHAR(100), 
	created_at DATETIME NOT NULL, 
	last_event_id BIGINT NOT NULL, 
	num_failures INTEGER NOT NULL, 
	disabled_at DATETIME, 
	disabled_because VARCHAR(1000), 
	CONSTRAINT pk_webhooks PRIMARY KEY (id), 
	CONSTRAINT fk_webhooks_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE workers (
	id VARCHAR(40) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (id)
);
INSERT INTO "workers" VALUES('worker_01M8FZ9Z39Q2YEAAGJK2YK6BD7','here',1,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
INSERT INTO "workers" VALUES('worker_01M8FZ9Z67KXD4KVBKR7QGRR3E','here',1,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE INDEX ix_jobs_state_created_at ON jobs (state, created_at);
CREATE INDEX ix_events_job_id_id ON events (job_id, id);
CREATE INDEX ix_trials_requested ON trials (job_id) WHERE requested IS NOT NULL;
CREATE UNIQUE INDEX ix_trials_job_id_idempotency_key ON trials (job_id, idempotency_key);
CREATE INDEX ix_jobs_workload ON jobs (workload);
CREATE INDEX ix_jobs_model ON jobs (model);
CREATE INDEX ix_recommendations_workload ON recommendations (workload);
CREATE INDEX ix_recommendations_model ON recommendations (model);
CREATE INDEX ix_recommendations_fingerprint ON recommendations (fingerprint);
CREATE INDEX ix_trials_progress ON trials (job_id, phase, state, value, number, spent_seconds, step);
CREATE UNIQUE INDEX uq_tokens_name ON tokens (name) WHERE revoked_at IS NULL;
CREATE INDEX ix_jobs_project_id ON jobs (project, id);
CREATE INDEX ix_jobs_deleted_at ON jobs (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX ix_deleted_jobs_project ON deleted_jobs (project);
CREATE INDEX ix_jobs_project_state_spent_device_seconds ON jobs (project, state, spent_device_seconds);
CREATE INDEX ix_output_chunks_output_id_id ON output_chunks (output_id, id);
CREATE INDEX ix_webhooks_project_id ON webhooks (project, id);
CREATE INDEX ix_webhook_deliveries_state_next_attempt_at ON webhook_deliveries (state, next_attempt_at);
CREATE INDEX ix_webhook_deliveries_webhook_id_id ON webhook_deliveries (webhook_id, id);
CREATE UNIQUE INDEX uq_external_requests_job_id_key ON external_requests (job_id, idempotency_key);
CREATE INDEX ix_external_requests_waiting ON external_requests (job_id, id) WHERE answered_at IS NULL;
CREATE INDEX ix_jobs_code_sha256 ON jobs (code_sha256) WHERE code_sha256 IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',52);
COMMIT;
