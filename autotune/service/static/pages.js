/* What pages do beyond links and forms: copying, tabs, filters that apply at once, charts that follow a search. */
"use strict";
(function () {
  /* Charts outlive the parts of a page that are replaced, with what was zoomed and chosen. */
  let kept = null;

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "live") return;
    const figure = document.querySelector("#live figure[data-chart]");
    if (figure && figure.chart) kept = figure;
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    const root = event.detail.target;
    if (root.id === "live" && kept) {
      const fresh = root.querySelector("figure[data-chart]");
      if (fresh) {
        kept.querySelector(".legend").replaceWith(fresh.querySelector(".legend"));
        kept.querySelector("figcaption").replaceWith(fresh.querySelector("figcaption"));
        fresh.replaceWith(kept);
        kept.chart.update(JSON.parse(document.getElementById(kept.dataset.source).textContent));
      }
      kept = null;
    }
    autotune.start(root.isConnected ? root : document);
    start(root.isConnected ? root : document);
  });

  /* htmx answers errors with nothing; why a check is refused stands in the answer, where that is the server's. */
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    if (target.id !== "checked" || xhr.status < 400) return;
    if (xhr.responseText.includes('class="verdict')) event.detail.shouldSwap = true;
    else target.textContent = "The server did not answer this (" + xhr.status + "): try again.";
  });
  document.addEventListener("htmx:sendError", (event) => {
    if (event.detail.target.id === "checked") event.detail.target.textContent = "The server does not answer: try again.";
  });

  const AWAY = "the server does not answer; trying again";

  /* Says what is amiss with the way to the server; "" for nothing. */
  function connection(amiss) {
    const said = document.getElementById("connection");
    if (!said) return;
    said.textContent = amiss || "live";
    said.closest(".status").classList.toggle("away", amiss !== "");
  }

  /* What runs and waits is looked at every few seconds: where that fails, it is of before. */
  function stale(event, amiss) {
    if (event.detail.target && event.detail.target.id === "now") document.getElementById("stale").textContent = amiss;
  }
  for (const kind of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(kind, (event) => stale(event, AWAY + "; this is the last known state"));
  }
  document.addEventListener("htmx:afterSwap", (event) => stale(event, ""));

  const isLive = (event) => event.detail.target && event.detail.target.id === "live";
  document.addEventListener("htmx:sseOpen", () => connection(""));
  /* An event source does not tell why it was refused: who looks is told. */
  document.addEventListener("htmx:sseError", () => htmx.trigger("#live", "look"));
  for (const kind of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(kind, (event) => { if (isLive(event)) connection(AWAY); });
  }
  document.addEventListener("htmx:responseError", (event) => {
    if (isLive(event)) connection(event.detail.xhr.status === 401 ? "you are signed out: load the page again" : AWAY);
  });

  async function copy(button) {
    const text = button.parentElement.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (error) {
      getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  function goToLine(number) {
    const area = document.getElementById("toml");
    const before = area.value.split("\n").slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
    const end = area.value.indexOf("\n", before);
    area.focus();
    area.setSelectionRange(before, end < 0 ? area.value.length : end);
    area.scrollTop = Math.max(0, (number - 4) * parseFloat(getComputedStyle(area).lineHeight));
  }

  function tabs(box) {
    const buttons = [...box.querySelectorAll('[role="tab"]')];
    function choose(chosen) {
      for (const button of buttons) {
        const on = button === chosen;
        button.setAttribute("aria-selected", String(on));
        button.tabIndex = on ? 0 : -1;
        document.getElementById(button.getAttribute("aria-controls")).classList.toggle("hidden", !on);
      }
    }
    box.querySelector(".tabs").classList.remove("hidden");
    box.querySelectorAll("[data-tab-title]").forEach((title) => title.classList.add("hidden"));
    buttons.forEach((button, at) => {
      button.addEventListener("click", () => choose(button));
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = buttons[(at + step + buttons.length) % buttons.length];
        choose(next);
        next.focus();
      });
    });
    choose(buttons[0]);
  }

  function start(root) {
    root.querySelectorAll("[data-tabs]").forEach((box) => { if (!box.ready) { box.ready = true; tabs(box); } });
    root.querySelectorAll("form[data-auto]").forEach((form) => {
      if (form.ready) return;
      form.ready = true;
      form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
    });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-line]");
    if (!button) return;
    if (button.dataset.line) goToLine(Number(button.dataset.line));
    else copy(button);
  });
  /* A form sent twice is one search; one that is come back to and sent again is another. */
  window.addEventListener("pageshow", () => {
    document.querySelectorAll("[data-once]").forEach((field) => {
      field.value = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    });
  });
  document.addEventListener("DOMContentLoaded", () => start(document));
})();
