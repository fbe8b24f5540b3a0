"""rideout's dispatcher: due tasks become Pods, also across an outage of the Kubernetes API. A tour, in reading order.

1. `rules`      what follows from an outcome: dispositions, hold, budget, window; `decide` is pure
2. `errors`     what an answer, or its lack, means; the only module that knows the client's exceptions
3. `schema`     the tables, and who moves each state on
4. `store`      every statement, named by its guard
5. `executors`  create the Pod of an attempt, once, within a true deadline
6. `dispatch`   the two paths, tick and buffered workers, around one main path: create, classify, decide, settle
7. `settler`    decisions written down in groups, each row under its own guard
8. `leadership` one replica ticks, decided in PostgreSQL
9. `planner`    what moves rows on without a create
10. `loop`      the main path on one screen
11. `reports`   what agents say, accepted only under their epoch
12. `agent`     the program inside the Pod: standard library only
13. `api`, `cli`, `settings`, `telemetry`   the edges
"""
