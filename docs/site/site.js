// Tables and code that are wider than the screen can be scrolled with the keyboard. The theme adds the
// element around a table after this script has run.
const makeScrollable = () =>
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((element) => {
    element.tabIndex = 0;
  });
makeScrollable();
new MutationObserver(makeScrollable).observe(document.querySelector("main"), {
  childList: true,
  subtree: true,
});
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
