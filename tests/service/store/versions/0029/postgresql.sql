CREATE TABLE public.audit_entries (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor character varying(200),
    token character varying(16),
    project character varying(64) NOT NULL,
    action character varying(60) NOT NULL,
    target character varying(200) NOT NULL,
    address character varying(64)
);
CREATE SEQUENCE public.audit_entries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_entries_id_seq OWNED BY public.audit_entries.id;
CREATE TABLE public.cluster_shares (
    job_id character varying(40) NOT NULL,
    attempt integer NOT NULL,
    cluster character varying(255) NOT NULL,
    num_groups integer CONSTRAINT cluster_shares_num_gangs_not_null NOT NULL,
    group_share double precision CONSTRAINT cluster_shares_gang_share_not_null NOT NULL,
    wants_since timestamp with time zone,
    short_of jsonb NOT NULL
);
CREATE TABLE public.code (
    project character varying(64) NOT NULL,
    sha256 character varying(64) NOT NULL,
    archive bytea NOT NULL,
    stored_bytes bigint NOT NULL,
    num_files integer NOT NULL,
    num_bytes bigint NOT NULL,
    owner character varying(100),
    created_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone NOT NULL
);
CREATE TABLE public.deleted_jobs (
    id character varying(40) NOT NULL,
    project character varying(64) NOT NULL,
    rank_seconds double precision NOT NULL,
    deleted_at timestamp with time zone NOT NULL
);
CREATE TABLE public.events (
    id bigint NOT NULL,
    job_id character varying(40) NOT NULL,
    kind character varying(40) NOT NULL,
    data jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;
CREATE TABLE public.external_requests (
    id bigint NOT NULL,
    job_id character varying(40) NOT NULL,
    kind character varying(20) NOT NULL,
    number integer,
    idempotency_key character varying(255) NOT NULL,
    request_digest character varying(64) NOT NULL,
    content jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    answered_at timestamp with time zone,
    answer jsonb
);
CREATE SEQUENCE public.external_requests_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.external_requests_id_seq OWNED BY public.external_requests.id;
CREATE TABLE public.job_insights (
    job_id character varying(40) NOT NULL,
    content jsonb NOT NULL,
    computed_at timestamp with time zone NOT NULL
);
CREATE TABLE public.jobs (
    id character varying(40) NOT NULL,
    name character varying(200) NOT NULL,
    tags jsonb NOT NULL,
    state character varying(20) NOT NULL,
    failure character varying,
    specification jsonb NOT NULL,
    workload character varying(200) CONSTRAINT jobs_model_not_null NOT NULL,
    num_trials integer NOT NULL,
    num_steps integer NOT NULL,
    idempotency_key character varying(255),
    request_digest character varying(64),
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    lease_worker_id character varying(40),
    lease_expires_at timestamp with time zone,
    attempt integer NOT NULL,
    crashes integer NOT NULL,
    not_before timestamp with time zone,
    running_seconds double precision DEFAULT '0'::double precision NOT NULL,
    reopened_at timestamp with time zone,
    running_since timestamp with time zone,
    requested character varying(20),
    disk_bytes bigint,
    priority integer DEFAULT 0 NOT NULL,
    waiting_since timestamp with time zone,
    waiting_for character varying,
    parameter_groups jsonb,
    objectives jsonb DEFAULT '[]'::jsonb NOT NULL,
    model character varying(200),
    project character varying(64) DEFAULT 'default'::character varying NOT NULL,
    owner character varying(100),
    thinned_at timestamp with time zone,
    device_hour_price double precision,
    currency character varying(3),
    notes text,
    cloned_from character varying(40),
    archived_at timestamp with time zone,
    deleted_at timestamp with time zone,
    reopened_from character varying(20),
    cut_off character varying,
    spent_device_seconds double precision DEFAULT '0'::double precision NOT NULL,
    is_external boolean DEFAULT false NOT NULL,
    code_sha256 character varying(64),
    trial_ends integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.measurements (
    trial_id character varying(40) CONSTRAINT measurements_trial_id_not_null1 NOT NULL,
    step integer CONSTRAINT measurements_step_not_null1 NOT NULL,
    epoch double precision CONSTRAINT measurements_epoch_not_null1 NOT NULL,
    seconds double precision CONSTRAINT measurements_seconds_not_null1 NOT NULL,
    metric_set_id integer NOT NULL,
    packed_values bytea NOT NULL,
    recorded_at timestamp with time zone CONSTRAINT measurements_recorded_at_not_null1 NOT NULL
);
CREATE TABLE public.metric_sets (
    id integer NOT NULL,
    digest character varying(64) NOT NULL,
    names jsonb NOT NULL
);
CREATE SEQUENCE public.metric_sets_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.metric_sets_id_seq OWNED BY public.metric_sets.id;
CREATE TABLE public.model_shapes (
    fingerprint character varying(64) NOT NULL,
    content jsonb NOT NULL
);
CREATE TABLE public.output_chunks (
    id bigint NOT NULL,
    output_id bigint NOT NULL,
    stream character varying(10) NOT NULL,
    source character varying(120) NOT NULL,
    ends_at bigint NOT NULL,
    omitted_bytes bigint NOT NULL,
    content text NOT NULL,
    recorded_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.output_chunks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.output_chunks_id_seq OWNED BY public.output_chunks.id;
CREATE TABLE public.projects (
    name character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    max_running_jobs integer,
    max_queued_jobs integer,
    max_device_hours double precision,
    max_stored_bytes bigint
);
CREATE TABLE public.rank_outputs (
    id bigint NOT NULL,
    trial_id character varying(40) NOT NULL,
    rank integer NOT NULL,
    stored_bytes bigint NOT NULL
);
CREATE SEQUENCE public.rank_outputs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.rank_outputs_id_seq OWNED BY public.rank_outputs.id;
CREATE TABLE public.recommendations (
    id character varying(40) NOT NULL,
    job_id character varying(40) NOT NULL,
    workload character varying(200) CONSTRAINT recommendations_model_not_null NOT NULL,
    optimizer character varying(40) NOT NULL,
    content jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    model character varying(200),
    fingerprint character varying(64),
    data_digest character varying(64),
    environment jsonb,
    batch_size integer,
    num_steps integer,
    "precision" character varying(20),
    device character varying(20),
    world_size integer,
    status character varying(20) DEFAULT 'provisional'::character varying NOT NULL,
    objective character varying(200) DEFAULT ''::character varying NOT NULL,
    project character varying(64) DEFAULT 'default'::character varying NOT NULL
);
CREATE TABLE public.shampoo_tuner_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.signing_keys (
    name character varying(40) NOT NULL,
    value character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.tokens (
    prefix character varying(16) NOT NULL,
    digest character varying(64) NOT NULL,
    name character varying(100) NOT NULL,
    project character varying(64) NOT NULL,
    scopes jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    sessions_ended_at timestamp with time zone
);
CREATE TABLE public.trial_leases (
    job_id character varying(40) NOT NULL,
    number integer NOT NULL,
    name character varying(40) NOT NULL,
    client character varying(200),
    begun_at timestamp with time zone NOT NULL,
    begun_seconds double precision NOT NULL,
    is_released boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.trials (
    id character varying(40) NOT NULL,
    job_id character varying(40) NOT NULL,
    number integer NOT NULL,
    phase character varying(20) NOT NULL,
    state character varying(20) NOT NULL,
    reason character varying(20),
    detail character varying,
    parameters jsonb NOT NULL,
    config jsonb NOT NULL,
    runs integer NOT NULL,
    step integer NOT NULL,
    seconds double precision NOT NULL,
    value double precision,
    metrics jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    spent_seconds double precision DEFAULT '0'::double precision NOT NULL,
    requested character varying(20),
    spared boolean DEFAULT false NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    memory_failures integer DEFAULT 0 NOT NULL,
    confirms integer,
    proposed boolean DEFAULT false NOT NULL,
    idempotency_key character varying(255),
    request_digest character varying(64),
    forked_from integer,
    forked_at_step integer,
    fingerprint character varying(64),
    data_digest character varying(64),
    environment jsonb,
    note text,
    places jsonb
);
CREATE TABLE public.webhook_deliveries (
    id character varying(40) NOT NULL,
    webhook_id character varying(40) NOT NULL,
    event_id bigint NOT NULL,
    kind character varying(40) NOT NULL,
    body text NOT NULL,
    state character varying(20) NOT NULL,
    attempts integer NOT NULL,
    next_attempt_at timestamp with time zone NOT NULL,
    status integer,
    answer text,
    seconds double precision,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone
);
CREATE TABLE public.webhooks (
    id character varying(40) NOT NULL,
    project character varying(64) NOT NULL,
    job_id character varying(40),
    url character varying(2000) NOT NULL,
    kinds jsonb NOT NULL,
    secret character varying(100) NOT NULL,
    owner character varying(100),
    created_at timestamp with time zone NOT NULL,
    last_event_id bigint NOT NULL,
    num_failures integer NOT NULL,
    disabled_at timestamp with time zone,
    disabled_because character varying(1000)
);
CREATE TABLE public.workers (
    id character varying(40) NOT NULL,
    host character varying(255) NOT NULL,
    pid integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL
);
ALTER TABLE ONLY public.audit_entries ALTER COLUMN id SET DEFAULT nextval('public.audit_entries_id_seq'::regclass);
ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);
ALTER TABLE ONLY public.external_requests ALTER COLUMN id SET DEFAULT nextval('public.external_requests_id_seq'::regclass);
ALTER TABLE ONLY public.metric_sets ALTER COLUMN id SET DEFAULT nextval('public.metric_sets_id_seq'::regclass);
ALTER TABLE ONLY public.output_chunks ALTER COLUMN id SET DEFAULT nextval('public.output_chunks_id_seq'::regclass);
ALTER TABLE ONLY public.rank_outputs ALTER COLUMN id SET DEFAULT nextval('public.rank_outputs_id_seq'::regclass);
INSERT INTO public.cluster_shares VALUES ('job_01M8FZ9ZHDBW6078E6Q89SAFMG', 1, '10.0.0.1:6379', 1, 0.25, NULL, '[]');
INSERT INTO public.events VALUES (1, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'job.state', '{"lost": null, "state": "queued", "failure": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (2, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'job.state', '{"lost": null, "state": "running", "failure": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (3, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "queued", "value": null, "number": 0, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (4, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "running", "value": null, "number": 0, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (5, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 10, "value": 3.6, "number": 0}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (6, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 20, "value": 1.8, "number": 0}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (7, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 30, "value": 1.2, "number": 0}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (8, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 40, "value": 0.9, "number": 0}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (9, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 40, "phase": "search", "state": "completed", "value": 0.9, "number": 0, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (10, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "queued", "value": null, "number": 1, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (11, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "running", "value": null, "number": 1, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (12, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 10, "value": 2.0, "number": 1}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (13, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 20, "value": 1.0, "number": 1}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (14, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 30, "value": 0.6666666666666666, "number": 1}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (15, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 40, "value": 0.5, "number": 1}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (16, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 40, "phase": "search", "state": "completed", "value": 0.5, "number": 1, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (17, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "queued", "value": null, "number": 2, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (18, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "running", "value": null, "number": 2, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (19, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 10, "value": 3.0, "number": 2}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (20, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 10, "phase": "search", "state": "pruned", "value": 3.0, "number": 2, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (21, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "queued", "value": null, "number": 3, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (22, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "running", "value": null, "number": 3, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (23, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "search", "state": "failed", "value": null, "number": 3, "reason": "store_failed", "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (24, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "baseline", "state": "queued", "value": null, "number": 4, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (25, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "baseline", "state": "running", "value": null, "number": 4, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (26, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 10, "value": 2.8, "number": 4}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (27, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 20, "value": 1.4, "number": 4}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (28, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 30, "value": 0.9333333333333333, "number": 4}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (29, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 40, "value": 0.7, "number": 4}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (30, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 40, "phase": "baseline", "state": "completed", "value": 0.7, "number": 4, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (31, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "confirmation", "state": "queued", "value": null, "number": 5, "reason": null, "confirms": 1, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (32, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "confirmation", "state": "running", "value": null, "number": 5, "reason": null, "confirms": 1, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (33, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 10, "value": 2.2, "number": 5}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (34, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 20, "value": 1.1, "number": 5}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (35, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 30, "value": 0.7333333333333333, "number": 5}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (36, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 40, "value": 0.55, "number": 5}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (37, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 40, "phase": "confirmation", "state": "completed", "value": 0.55, "number": 5, "reason": null, "confirms": 1, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (38, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "confirmation", "state": "queued", "value": null, "number": 6, "reason": null, "confirms": 4, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (39, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 0, "phase": "confirmation", "state": "running", "value": null, "number": 6, "reason": null, "confirms": 4, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (40, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 10, "value": 3.0, "number": 6}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (41, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 20, "value": 1.5, "number": 6}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (42, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 30, "value": 1.0, "number": 6}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (43, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.measured', '{"step": 40, "value": 0.75, "number": 6}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (44, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'trial.state', '{"step": 40, "phase": "confirmation", "state": "completed", "value": 0.75, "number": 6, "reason": null, "confirms": 4, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (45, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'job.recommendation', '{}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (46, 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'job.state', '{"lost": null, "state": "succeeded", "failure": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (47, 'job_01M8FZ9ZHDBW6078E6Q89SAFMG', 'job.state', '{"lost": null, "state": "queued", "failure": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (48, 'job_01M8FZ9ZHDBW6078E6Q89SAFMG', 'job.state', '{"lost": null, "state": "running", "failure": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (49, 'job_01M8FZ9ZHDBW6078E6Q89SAFMG', 'trial.state', '{"step": 0, "phase": "search", "state": "queued", "value": null, "number": 0, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (50, 'job_01M8FZ9ZHDBW6078E6Q89SAFMG', 'trial.state', '{"step": 0, "phase": "search", "state": "running", "value": null, "number": 0, "reason": null, "confirms": null, "requested": null, "forked_from": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (51, 'job_01M8FZ9ZHDBW6078E6Q89SAFMG', 'trial.measured', '{"step": 10, "value": 2.0, "number": 0}', '2026-03-01 12:00:00+00');
INSERT INTO public.events VALUES (52, 'job_01M8FZ9ZJ1RRANWZJCDMPHSYHC', 'job.state', '{"lost": null, "state": "queued", "failure": null}', '2026-03-01 12:00:00+00');
INSERT INTO public.jobs VALUES ('job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'digits-mlp', '{}', 'succeeded', NULL, '{"code": null, "budget": {"cost": null, "patience": null, "num_trials": 5, "device_hours": null, "wall_clock_seconds": null, "extra_search_trials": 0}, "pinned": [], "pruner": {"name": null, "interval": null, "min_steps": null, "population": null, "reduction_factor": null}, "target": null, "sampler": {"name": null, "seed": 0, "options": {}}, "currency": null, "external": null, "imported": [], "trackers": [], "training": {"seed": 0, "compile": false, "max_loss": 10000.0, "averaging": null, "num_steps": 40, "precision": "float32", "batch_size": null, "num_tokens": null, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "num_examples": null, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_tokens": null, "evaluate_every_seconds": null, "report_timeout_seconds": 7200.0, "evaluate_every_examples": null, "activation_checkpointing": false}, "workload": {"name": "digits-mlp", "options": {}}, "baselines": [{"pinned": [], "budget_share": 0.25, "extra_trials": 0, "search_space": "adamw"}], "resources": {"cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "parallel_trials": null, "custom_resources": {}, "memory_per_worker": null, "workers_per_trial": 1}, "objectives": [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}], "constraints": [], "confirmation": {"top_k": 1, "num_seeds": 2}, "keep_weights": true, "search_space": "shampoo"}', 'digits-mlp', 7, 40, NULL, '10b6c2060574c31bba0f6e9612b48003b89ba63bc0dfc3167bf3d583588bb0bc', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, NULL, 1, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, '[]', '[{"metric": "validation_loss", "direction": "minimize"}, {"metric": "validation_accuracy", "direction": "maximize"}]', NULL, 'default', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2.1, false, NULL, 7);
INSERT INTO public.jobs VALUES ('job_01M8FZ9ZHDBW6078E6Q89SAFMG', 'digits-mlp', '{}', 'running', NULL, '{"code": null, "budget": {"cost": null, "patience": null, "num_trials": 4, "device_hours": null, "wall_clock_seconds": null, "extra_search_trials": 0}, "pinned": [], "pruner": {"name": null, "interval": null, "min_steps": null, "population": null, "reduction_factor": null}, "target": null, "sampler": {"name": null, "seed": 0, "options": {}}, "currency": null, "external": null, "imported": [], "trackers": [], "training": {"seed": 0, "compile": false, "max_loss": 10000.0, "averaging": null, "num_steps": 40, "precision": "float32", "batch_size": null, "num_tokens": null, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "num_examples": null, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_tokens": null, "evaluate_every_seconds": null, "report_timeout_seconds": 7200.0, "evaluate_every_examples": null, "activation_checkpointing": false}, "workload": {"name": "digits-mlp", "options": {}}, "baselines": [], "resources": {"cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "parallel_trials": null, "custom_resources": {}, "memory_per_worker": null, "workers_per_trial": 1}, "objectives": [], "constraints": [], "confirmation": "auto", "keep_weights": true, "search_space": "shampoo"}', 'digits-mlp', 4, 40, NULL, 'eb0ff04c841f34470ca8bda199e893f9ee4d97839b9d75fc6591f1f1a5d7dbcf', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, 'worker_01M8FZ9ZHF886PWVZBX6V5EZCX', '2026-03-01 12:00:30+00', 1, 0, NULL, 0, NULL, '2026-03-01 12:00:00+00', NULL, NULL, 0, NULL, NULL, '[]', '[{"metric": "validation_loss", "direction": "minimize"}]', NULL, 'default', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, NULL, 0);
INSERT INTO public.jobs VALUES ('job_01M8FZ9ZJ1RRANWZJCDMPHSYHC', 'digits-mlp', '{}', 'queued', NULL, '{"code": null, "budget": {"cost": null, "patience": null, "num_trials": 4, "device_hours": null, "wall_clock_seconds": null, "extra_search_trials": 0}, "pinned": [], "pruner": {"name": null, "interval": null, "min_steps": null, "population": null, "reduction_factor": null}, "target": null, "sampler": {"name": null, "seed": 0, "options": {}}, "currency": null, "external": null, "imported": [], "trackers": [], "training": {"seed": 0, "compile": false, "max_loss": 10000.0, "averaging": null, "num_steps": 40, "precision": "float32", "batch_size": null, "num_tokens": null, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "num_examples": null, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_tokens": null, "evaluate_every_seconds": null, "report_timeout_seconds": 7200.0, "evaluate_every_examples": null, "activation_checkpointing": false}, "workload": {"name": "digits-mlp", "options": {}}, "baselines": [{"pinned": [], "budget_share": 0.25, "extra_trials": 0, "search_space": "adamw"}], "resources": {"cpus_per_worker": 1.0, "gpus_per_worker": 0.0, "parallel_trials": null, "custom_resources": {}, "memory_per_worker": null, "workers_per_trial": 1}, "objectives": [], "constraints": [], "confirmation": "auto", "keep_weights": true, "search_space": "shampoo"}', 'digits-mlp', 4, 40, NULL, 'b20725bf27c570e8234ed95dc19191f25dffefb28302b769042c848621295138', '2026-03-01 12:00:00+00', NULL, NULL, NULL, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, '2026-03-01 12:00:00+00', NULL, '[]', '[{"metric": "validation_loss", "direction": "minimize"}]', NULL, 'default', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, NULL, 0);
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZDXN13CH2CE9ENJMWD5', 10, 1, 0.1, 1, '\xcdcccccccccc0c40cdcccccccccc0c40bee94d6f7ad3cb3f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZDXN13CH2CE9ENJMWD5', 20, 2, 0.2, 1, '\xcdccccccccccfc3fcdccccccccccfc3fb76ddbb66ddbd63f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZDXN13CH2CE9ENJMWD5', 30, 3, 0.3, 1, '\x333333333333f33f333333333333f33f175d74d14517dd3f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZDXN13CH2CE9ENJMWD5', 40, 4, 0.4, 1, '\xcdccccccccccec3fcdccccccccccec3f790de53594d7e03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZEHQDVE8J00DAW7525R', 10, 1, 0.1, 1, '\x00000000000000400000000000000040555555555555d53f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZEHQDVE8J00DAW7525R', 20, 2, 0.2, 1, '\x000000000000f03f000000000000f03f000000000000e03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZEHQDVE8J00DAW7525R', 30, 3, 0.3, 1, '\x555555555555e53f555555555555e53f343333333333e33f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZEHQDVE8J00DAW7525R', 40, 4, 0.4, 1, '\x000000000000e03f000000000000e03f555555555555e53f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZEZWQVBZN3E9TV56XW1', 10, 1, 0.1, 1, '\x00000000000008400000000000000840000000000000d03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZFQD7ATGV73EVE62WXX', 10, 1, 0.1, 1, '\x66666666666606406666666666660640790de53594d7d03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZFQD7ATGV73EVE62WXX', 20, 2, 0.2, 1, '\x666666666666f63f666666666666f63fabaaaaaaaaaada3f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZFQD7ATGV73EVE62WXX', 30, 3, 0.3, 1, '\xdedddddddddded3fdedddddddddded3fddd308cb3d8de03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZFQD7ATGV73EVE62WXX', 40, 4, 0.4, 1, '\x666666666666e63f666666666666e63fd3d2d2d2d2d2e23f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZG4GFDD8M029Q3B69RW', 10, 1, 0.1, 1, '\x9a999999999901409a99999999990140000000000000d43f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZG4GFDD8M029Q3B69RW', 20, 2, 0.2, 1, '\x9a9999999999f13f9a9999999999f13f9ee7799ee779de3f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZG4GFDD8M029Q3B69RW', 30, 3, 0.3, 1, '\x777777777777e73f777777777777e73f622776622776e23f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZG4GFDD8M029Q3B69RW', 40, 4, 0.4, 1, '\x9a9999999999e13f9a9999999999e13fa594524a29a5e43f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZGJJY7JFEY7K2XWJ34Z', 10, 1, 0.1, 1, '\x00000000000008400000000000000840000000000000d03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZGJJY7JFEY7K2XWJ34Z', 20, 2, 0.2, 1, '\x000000000000f83f000000000000f83f9a9999999999d93f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZGJJY7JFEY7K2XWJ34Z', 30, 3, 0.3, 1, '\x000000000000f03f000000000000f03f000000000000e03f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZGJJY7JFEY7K2XWJ34Z', 40, 4, 0.4, 1, '\x000000000000e83f000000000000e83f922449922449e23f', '2026-03-01 12:00:00+00');
INSERT INTO public.measurements VALUES ('trial_01M8FZ9ZHPS3YX173592YEJ8SJ', 10, 1, 0.1, 1, '\x00000000000000400000000000000040555555555555d53f', '2026-03-01 12:00:00+00');
INSERT INTO public.metric_sets VALUES (1, '7490b39830714efa78403ff6bbac9e7b78b1bbdc5adeee2b1cfc99e1e91a2eef', '["train_loss", "validation_loss", "validation_accuracy"]');
INSERT INTO public.projects VALUES ('default', '2026-11-28 02:21:19.088162+00', NULL, NULL, NULL, NULL);
INSERT INTO public.recommendations VALUES ('rec_01M8FZ9ZH4RB8P98W0DQAQGZ0G', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 'digits-mlp', 'shampoo', '{"ranks": {"device": "cpu", "number": 1, "num_threads": 1}, "config": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}, "evidence": {"best": {"value": 0.5, "config": {"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}, "number": 1, "lineage": [], "metrics": {"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}, "seconds": 0.4, "num_steps": 40}, "front": [{"phase": "search", "number": 1, "values": {"validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}}], "seeds": [0], "metric": "validation_loss", "status": "provisional", "caveats": ["The values are those of the search, of one seed each, and the best of many is partly luck: repeat both winners with fresh seeds before relying on the difference.", "The baseline''s best config lies at the edge of what was searched: betas[1] = 0.999 by the upper bound 0.999. Better values may lie beyond: widen the range in the job''s search space, or `try` such values (--beyond-bounds --phase baseline --optimizer adamw --set betas[1]=...).", "The search had 4 trials and the baseline 1, which favours the search.", "The confirmation did not finish: 0 of 2 seeds were compared."], "verdict": "undecided", "baseline": {"value": 0.7, "config": {"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "adamw", "arguments": {"lr": 0.016, "eps": 0.00000001, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}, "number": 4, "lineage": [], "metrics": {"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}, "seconds": 0.4, "num_steps": 40}, "branches": null, "currency": "steps", "baselines": [{"value": 0.7, "number": 4, "num_tried": 1, "optimizer": "adamw", "num_new_seeds": 0}], "direction": "minimize", "transfers": [], "break_even": null, "num_trials": {"search": {"pruned": 1, "completed": 2, "failed (store_failed)": 1}, "baseline": {"completed": 1}, "confirmation": {"completed": 2}}, "comparisons": [{"spent": 40.0, "value": 0.5, "verdict": "undecided", "currency": "steps", "improvement": 0.28571428571428564, "baseline_value": 0.7, "improvement_low": null, "improvement_high": null}, {"spent": 0.4, "value": 0.5, "verdict": "undecided", "currency": "seconds", "improvement": 0.28571428571428564, "baseline_value": 0.7, "improvement_low": null, "improvement_high": null}, {"spent": 5120.0, "value": 0.5, "verdict": "undecided", "currency": "examples", "improvement": 0.28571428571428564, "baseline_value": 0.7, "improvement_low": null, "improvement_high": null}], "improvement": 0.28571428571428564, "alternatives": [], "confirmation": {"seeds": [], "baseline": {"mean": null, "number": 4, "results": [{"seed": 1001, "value": 0.75, "ending": "completed", "number": 6}], "found_value": 0.7, "further_low": null, "further_high": null, "choosing_mean": null, "probability_best": null, "standard_deviation": null}, "candidates": [{"mean": null, "number": 1, "results": [{"seed": 1001, "value": 0.55, "ending": "completed", "number": 5}], "found_value": 0.5, "further_low": null, "further_high": null, "choosing_mean": null, "probability_best": null, "standard_deviation": null}], "confidence": 0.95, "is_settled": false, "choosing_seeds": [], "baseline_others": [], "improvement_low": null, "improvement_high": null}, "equal_within": 0.005, "side_seconds": {"adamw": 0.4, "search": 0.9}, "search_interval": null, "verdict_caveats": [], "reached_baseline": {"step": 30.0, "seconds": 0.3, "step_ratio": 1.3333333333333333, "baseline_step": 40.0, "seconds_ratio": 1.3333333333333335, "examples_ratio": 1.3333333333333333, "step_ratio_low": null, "step_ratio_high": null, "baseline_seconds": 0.4, "seconds_ratio_low": null, "examples_ratio_low": null, "seconds_ratio_high": null, "examples_ratio_high": null, "is_first_measurement": false}}, "schedule": {"decay": "cosine", "horizon": 1.0, "warmup_fraction": 0.05}, "training": {"averaging": null, "num_steps": 40, "precision": "float32", "batch_size": 128, "compression": null, "accumulation_steps": 1, "gradient_clip_norm": null}, "workload": "digits-mlp", "optimizer": "shampoo", "code_sha256": null, "keeps_weights": true, "parameter_groups": [], "workload_options": {}}', '2026-03-01 12:00:00+00', NULL, NULL, NULL, 'null', 128, 40, 'float32', 'cpu', 1, 'provisional', 'validation_loss', 'default');
INSERT INTO public.shampoo_tuner_version VALUES ('0029');
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZDXN13CH2CE9ENJMWD5', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 0, 'search', 'completed', NULL, NULL, '{"lr": 0.016, "epsilon": 0.000001, "betas[0]": 0.95, "betas[1]": 0.995, "weight_decay": 0.01, "precondition_frequency": 10, "schedule.warmup_fraction": 0.05}', '{"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 40, 0.4, 0.9, '{"train_loss": 0.9, "validation_loss": 0.9, "validation_accuracy": 0.5263157894736842}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.4, NULL, false, 0, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZEHQDVE8J00DAW7525R', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 1, 'search', 'completed', NULL, NULL, '{"lr": 0.016, "epsilon": 0.000001, "betas[0]": 0.95, "betas[1]": 0.995, "weight_decay": 0.01, "precondition_frequency": 10, "schedule.warmup_fraction": 0.05}', '{"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 40, 0.4, 0.5, '{"train_loss": 0.5, "validation_loss": 0.5, "validation_accuracy": 0.6666666666666666}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.4, NULL, false, 0, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZEZWQVBZN3E9TV56XW1', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 2, 'search', 'pruned', NULL, NULL, '{"lr": 0.016, "epsilon": 0.000001, "betas[0]": 0.95, "betas[1]": 0.995, "weight_decay": 0.01, "precondition_frequency": 10, "schedule.warmup_fraction": 0.05}', '{"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 10, 0.1, 3, '{"train_loss": 3.0, "validation_loss": 3.0, "validation_accuracy": 0.25}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.1, NULL, false, 0, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZFD0P1G2XAQKV8K4DBZ', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 3, 'search', 'failed', 'store_failed', 'lost 4 times; last: the store of checkpoints failed: s3://bucket cannot be listed', '{"lr": 0.016, "epsilon": 0.000001, "betas[0]": 0.95, "betas[1]": 0.995, "weight_decay": 0.01, "precondition_frequency": 10, "schedule.warmup_fraction": 0.05}', '{"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 0, 0, NULL, '{}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0, NULL, false, 0, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZFQD7ATGV73EVE62WXX', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 4, 'baseline', 'completed', NULL, NULL, '{"lr": 0.016, "betas[0]": 0.9, "betas[1]": 0.999, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05}', '{"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "adamw", "arguments": {"lr": 0.016, "eps": 0.00000001, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 40, 0.4, 0.7, '{"train_loss": 0.7, "validation_loss": 0.7, "validation_accuracy": 0.5882352941176471}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.4, NULL, false, 0, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZG4GFDD8M029Q3B69RW', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 5, 'confirmation', 'completed', NULL, NULL, '{"lr": 0.016, "epsilon": 0.000001, "betas[0]": 0.95, "betas[1]": 0.995, "weight_decay": 0.01, "precondition_frequency": 10, "schedule.warmup_fraction": 0.05}', '{"seed": 1001, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 40, 0.4, 0.55, '{"train_loss": 0.55, "validation_loss": 0.55, "validation_accuracy": 0.6451612903225806}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.4, NULL, false, 0, 0, 1, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZGJJY7JFEY7K2XWJ34Z', 'job_01M8FZ9ZD9WHVEYAGFE7QQB2SH', 6, 'confirmation', 'completed', NULL, NULL, '{"lr": 0.016, "betas[0]": 0.9, "betas[1]": 0.999, "weight_decay": 0.01, "schedule.warmup_fraction": 0.05}', '{"seed": 1001, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "adamw", "arguments": {"lr": 0.016, "eps": 0.00000001, "betas": [0.9, 0.999], "weight_decay": 0.01}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 40, 0.4, 0.75, '{"train_loss": 0.75, "validation_loss": 0.75, "validation_accuracy": 0.5714285714285714}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.4, NULL, false, 0, 0, 4, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.trials VALUES ('trial_01M8FZ9ZHPS3YX173592YEJ8SJ', 'job_01M8FZ9ZHDBW6078E6Q89SAFMG', 0, 'search', 'running', NULL, NULL, '{"lr": 0.016, "epsilon": 0.000001, "betas[0]": 0.95, "betas[1]": 0.995, "weight_decay": 0.01, "precondition_frequency": 10, "schedule.warmup_fraction": 0.05}', '{"seed": 0, "target": null, "compile": false, "max_loss": 10000.0, "schedule": {"decay": "cosine", "horizon": 1.0, "decay_fraction": null, "warmup_fraction": 0.05}, "workload": "digits-mlp", "averaging": null, "num_steps": 40, "optimizer": {"name": "shampoo", "arguments": {"lr": 0.016, "betas": [0.95, 0.995], "epsilon": 0.000001, "grafting": "adam", "weight_decay": 0.01, "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "precondition_frequency": 10}}, "precision": "float32", "summaries": [], "batch_size": 128, "compression": null, "parallelism": {"mode": "ddp", "shard_size": null}, "evaluate_every": 10, "checkpoint_every": null, "keep_checkpoints": 2, "workload_options": {}, "accumulation_steps": 1, "gradient_clip_norm": null, "evaluate_every_epochs": null, "evaluate_every_seconds": null, "evaluate_every_examples": null, "activation_checkpointing": false}', 1, 10, 0.1, 2, '{"train_loss": 2.0, "validation_loss": 2.0, "validation_accuracy": 0.3333333333333333}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, 0.1, NULL, false, 0, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.workers VALUES ('worker_01M8FZ9ZDEV4W08A0GK6GE7RQ2', 'here', 1, '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00');
INSERT INTO public.workers VALUES ('worker_01M8FZ9ZHF886PWVZBX6V5EZCX', 'here', 1, '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00');
SELECT pg_catalog.setval('public.audit_entries_id_seq', 1, false);
SELECT pg_catalog.setval('public.events_id_seq', 52, true);
SELECT pg_catalog.setval('public.external_requests_id_seq', 1, false);
SELECT pg_catalog.setval('public.metric_sets_id_seq', 1, true);
SELECT pg_catalog.setval('public.output_chunks_id_seq', 1, false);
SELECT pg_catalog.setval('public.rank_outputs_id_seq', 1, false);
ALTER TABLE ONLY public.audit_entries
    ADD CONSTRAINT pk_audit_entries PRIMARY KEY (id);
ALTER TABLE ONLY public.cluster_shares
    ADD CONSTRAINT pk_cluster_shares PRIMARY KEY (job_id);
ALTER TABLE ONLY public.code
    ADD CONSTRAINT pk_code PRIMARY KEY (project, sha256);
ALTER TABLE ONLY public.deleted_jobs
    ADD CONSTRAINT pk_deleted_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);
ALTER TABLE ONLY public.external_requests
    ADD CONSTRAINT pk_external_requests PRIMARY KEY (id);
ALTER TABLE ONLY public.job_insights
    ADD CONSTRAINT pk_job_insights PRIMARY KEY (job_id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT pk_measurements PRIMARY KEY (trial_id, step);
ALTER TABLE ONLY public.metric_sets
    ADD CONSTRAINT pk_metric_sets PRIMARY KEY (id);
ALTER TABLE ONLY public.model_shapes
    ADD CONSTRAINT pk_model_shapes PRIMARY KEY (fingerprint);
ALTER TABLE ONLY public.output_chunks
    ADD CONSTRAINT pk_output_chunks PRIMARY KEY (id);
ALTER TABLE ONLY public.projects
    ADD CONSTRAINT pk_projects PRIMARY KEY (name);
ALTER TABLE ONLY public.rank_outputs
    ADD CONSTRAINT pk_rank_outputs PRIMARY KEY (id);
ALTER TABLE ONLY public.recommendations
    ADD CONSTRAINT pk_recommendations PRIMARY KEY (id);
ALTER TABLE ONLY public.signing_keys
    ADD CONSTRAINT pk_signing_keys PRIMARY KEY (name);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT pk_tokens PRIMARY KEY (prefix);
ALTER TABLE ONLY public.trial_leases
    ADD CONSTRAINT pk_trial_leases PRIMARY KEY (job_id, number);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT pk_trials PRIMARY KEY (id);
ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id);
ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT pk_webhooks PRIMARY KEY (id);
ALTER TABLE ONLY public.workers
    ADD CONSTRAINT pk_workers PRIMARY KEY (id);
ALTER TABLE ONLY public.shampoo_tuner_version
    ADD CONSTRAINT shampoo_tuner_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT uq_jobs_idempotency_key UNIQUE (idempotency_key);
ALTER TABLE ONLY public.metric_sets
    ADD CONSTRAINT uq_metric_sets_digest UNIQUE (digest);
ALTER TABLE ONLY public.rank_outputs
    ADD CONSTRAINT uq_rank_outputs_trial_id_rank UNIQUE (trial_id, rank);
ALTER TABLE ONLY public.recommendations
    ADD CONSTRAINT uq_recommendations_job_id UNIQUE (job_id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT uq_trials_job_id_number UNIQUE (job_id, number);
CREATE INDEX ix_deleted_jobs_project ON public.deleted_jobs USING btree (project);
CREATE INDEX ix_events_job_id_id ON public.events USING btree (job_id, id);
CREATE INDEX ix_external_requests_waiting ON public.external_requests USING btree (job_id, id) WHERE (answered_at IS NULL);
CREATE INDEX ix_jobs_code_sha256 ON public.jobs USING btree (code_sha256) WHERE (code_sha256 IS NOT NULL);
CREATE INDEX ix_jobs_deleted_at ON public.jobs USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE INDEX ix_jobs_model ON public.jobs USING btree (model);
CREATE INDEX ix_jobs_project_id ON public.jobs USING btree (project, id);
CREATE INDEX ix_jobs_project_state_spent_device_seconds ON public.jobs USING btree (project, state, spent_device_seconds);
CREATE INDEX ix_jobs_state_created_at ON public.jobs USING btree (state, created_at);
CREATE INDEX ix_jobs_workload ON public.jobs USING btree (workload);
CREATE INDEX ix_output_chunks_output_id_id ON public.output_chunks USING btree (output_id, id);
CREATE INDEX ix_recommendations_fingerprint ON public.recommendations USING btree (fingerprint);
CREATE INDEX ix_recommendations_model ON public.recommendations USING btree (model);
CREATE INDEX ix_recommendations_workload ON public.recommendations USING btree (workload);
CREATE UNIQUE INDEX ix_trials_job_id_idempotency_key ON public.trials USING btree (job_id, idempotency_key);
CREATE INDEX ix_trials_progress ON public.trials USING btree (job_id, phase, state, value, number, spent_seconds, step);
CREATE INDEX ix_trials_requested ON public.trials USING btree (job_id) WHERE (requested IS NOT NULL);
CREATE INDEX ix_webhook_deliveries_state_next_attempt_at ON public.webhook_deliveries USING btree (state, next_attempt_at);
CREATE INDEX ix_webhook_deliveries_webhook_id_id ON public.webhook_deliveries USING btree (webhook_id, id);
CREATE INDEX ix_webhooks_project_id ON public.webhooks USING btree (project, id);
CREATE UNIQUE INDEX uq_external_requests_job_id_key ON public.external_requests USING btree (job_id, idempotency_key);
CREATE UNIQUE INDEX uq_tokens_name ON public.tokens USING btree (name) WHERE (revoked_at IS NULL);
ALTER TABLE ONLY public.cluster_shares
    ADD CONSTRAINT fk_cluster_shares_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.events
    ADD CONSTRAINT fk_events_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.external_requests
    ADD CONSTRAINT fk_external_requests_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.job_insights
    ADD CONSTRAINT fk_job_insights_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT fk_jobs_lease_worker_id_workers FOREIGN KEY (lease_worker_id) REFERENCES public.workers(id);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT fk_measurements_metric_set_id_metric_sets FOREIGN KEY (metric_set_id) REFERENCES public.metric_sets(id);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT fk_measurements_trial_id_trials FOREIGN KEY (trial_id) REFERENCES public.trials(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.output_chunks
    ADD CONSTRAINT fk_output_chunks_output_id_rank_outputs FOREIGN KEY (output_id) REFERENCES public.rank_outputs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.rank_outputs
    ADD CONSTRAINT fk_rank_outputs_trial_id_trials FOREIGN KEY (trial_id) REFERENCES public.trials(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.recommendations
    ADD CONSTRAINT fk_recommendations_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT fk_tokens_project_projects FOREIGN KEY (project) REFERENCES public.projects(name);
ALTER TABLE ONLY public.trial_leases
    ADD CONSTRAINT fk_trial_leases_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT fk_webhook_deliveries_webhook_id_webhooks FOREIGN KEY (webhook_id) REFERENCES public.webhooks(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT fk_webhooks_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
