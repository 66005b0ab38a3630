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

  /* htmx answers errors with nothing; what a form was told stands in the answer all the same. */
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    const target = event.detail.target || event.detail.elt;
    if (event.detail.xhr.status >= 400 && target && target.id === "checked") {
      target.textContent = "The server refused: reload the page and try again.";
    }
  });

  function connection(isThere) {
    const said = document.getElementById("connection");
    if (!said) return;
    said.textContent = isThere ? "live" : "the server does not answer; trying again";
    said.closest(".status").classList.toggle("away", !isThere);
  }

  document.addEventListener("htmx:sseOpen", () => connection(true));
  document.addEventListener("htmx:sseError", () => connection(false));

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
        button.setAttribute("aria-pressed", String(on));
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
