// Addresses have only what is filled in, `/` goes to the search, and two runs are compared, neither fewer nor more.
document.addEventListener("htmx:configRequest", event => {
  if (event.target.id !== "filter") return;
  const given = event.detail.parameters;
  for (const name of Object.keys(given)) if (!given[name]) delete given[name];
});
document.addEventListener("keydown", event => {
  const search = document.querySelector("#q");
  if (event.key !== "/" || !search || event.target.matches("#filter *")) return;
  event.preventDefault();
  search.focus();
});
// The page of a run leads to the next one of the list.
document.addEventListener("click", event => {
  if (!event.target.closest("tr[id] td.task a")) return;  // Those of batches have no id.
  const links = Array.from(document.querySelectorAll("td.task a"), link => link.href);
  sessionStorage.setItem("runs", JSON.stringify(links));
});
function choose() {
  const button = document.querySelector("#compare button");
  if (button) button.disabled = document.querySelectorAll("#compare input:checked").length !== 2;
}
document.addEventListener("change", choose);
document.addEventListener("htmx:afterSettle", choose);
choose();
