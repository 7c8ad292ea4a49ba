"""The process that serves: the app put together from API and dashboard, its middleware, `serve`. Never a route."""
