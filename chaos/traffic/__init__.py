"""The load: what is due when (`schedule`), Locust which submits it (`locustfile`, started by `launcher`), and the
user code that the tasks run (`work`)."""
