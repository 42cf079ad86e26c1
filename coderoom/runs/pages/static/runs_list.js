// Addresses have only what is filled in, `/` goes to the search, and two runs are compared, neither fewer nor more.
document.addEventListener("htmx:configRequest", event => {
  if (event.target.id !== "filter") return;
  const given = event.detail.parameters;
  for (const name of Object.keys(given)) if (!given[name]) delete given[name];
});
document.addEventListener("keydown", event => {
  if (event.key !== "/" || event.target.matches("#filter *")) return;
  event.preventDefault();
  document.querySelector("#q").focus();
});
function choose() {
  const button = document.querySelector("#compare button");
  if (button) button.disabled = document.querySelectorAll("#compare input:checked").length !== 2;
}
document.addEventListener("change", choose);
document.addEventListener("htmx:afterSettle", choose);
choose();
