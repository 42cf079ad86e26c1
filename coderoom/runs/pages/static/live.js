// What asks every second (`polled` in frame.py): only for what is new, and while it is seen. What is open or checked stays so.
const seen = {};  // The versions, each of which is that of one address.
document.addEventListener("htmx:configRequest", event => {
  if (!event.target.matches(".polled")) return;
  if (document.hidden) event.preventDefault();
  if (seen[event.target.id]) event.detail.headers["If-None-Match"] = seen[event.target.id];
});
document.addEventListener("htmx:beforeSwap", event => {
  if (event.target.matches(".polled") && event.detail.xhr.status === 200)
    seen[event.target.id] = event.detail.xhr.getResponseHeader("ETag");
});
document.addEventListener("htmx:afterRequest", event => document.body.classList.toggle("lost", !event.detail.xhr.status));
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element) =>
  !(name === "open" && element.matches("details")) && !(name === "checked" && element.matches(".polled input"));
Idiomorph.defaults.ignoreActiveValue = true;  // What is being typed stays.
