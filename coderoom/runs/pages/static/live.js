// Takes the new page when there is one, and keeps open what is open.
let seen = "";
setInterval(async () => {
  const answer = await fetch(location.href, {headers: {"If-None-Match": seen}}).catch(() => null);
  if (!answer || answer.status !== 200) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  const open = [...document.querySelectorAll("details")].map(each => each.open);
  document.body.replaceChildren(...next.body.childNodes);
  document.querySelectorAll("details").forEach((each, at) => { each.open = open[at] || false; });
  seen = answer.headers.get("ETag");
}, 1000);
