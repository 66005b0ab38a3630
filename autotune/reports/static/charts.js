/* Charts of a page: each <figure data-chart> takes its data from the JSON beside it, and the colours of the sheet. */
"use strict";
(function () {
  const OUTCOMES = ["ok", "stopped", "compile_error", "launch_error", "wrong_result", "timeout", "crash"];
  const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const AXIS = 78, MARK = 60; // pixels: the width of an axis of times, and of a mark below an axis with its room
  const charts = new Set();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function digits(value, most) {
    return String(Number(value.toPrecision(most || 4)));
  }

  function time(ns) {
    if (ns === null || ns === undefined || !isFinite(ns)) return "";
    const [unit, scale] = UNITS.find(([, each]) => Math.abs(ns) >= each) || ["ns", 1];
    return digits(ns / scale) + " " + unit;
  }

  function duration(seconds) {
    if (seconds < 120) return digits(seconds, 3) + " s";
    if (seconds < 7200) return digits(seconds / 60, 3) + " min";
    return digits(seconds / 3600, 3) + " h";
  }

  function read(figure) {
    const source = document.getElementById(figure.dataset.source);
    return source ? JSON.parse(source.textContent) : null;
  }

  function pairs(names, values) {
    return names.map((name, at) => (values[at] === null ? "" : name + "=" + values[at])).filter(Boolean).join(" ");
  }

  function axis(label, values, size) {
    return {
      label, values, size: size || 34, labelSize: 20, labelGap: 0, font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif", stroke: () => colour("quiet"),
      grid: { stroke: () => colour("grid"), width: 1 }, ticks: { stroke: () => colour("grid"), width: 1 },
    };
  }

  /* A logarithmic axis marks 1, 2 and 5 of each power where there is room, the powers alone where there is not. */
  function logAxis(label, show) {
    return {
      ...axis(label, (_, ticks) => ticks.map(show), AXIS), scale: "y",
      splits: (plot, _at, low, high) => {
        const span = Math.log10(high / low), steps = span > 4 ? [1] : span > 0.9 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
        const found = [];
        for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
          for (const step of steps) {
            const tick = step * 10 ** power;
            if (tick >= low && tick <= high) found.push(tick);
          }
        }
        return found;
      },
      filter: (_, ticks) => ticks,
    };
  }

  /* Trials are counted: no mark stands between two of them. */
  function countAxis(label) {
    return { ...axis(label), incrs: [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)) };
  }

  function plainAxis(label, show) {
    return { ...axis(label, (_, ticks) => ticks.map(show), AXIS), scale: "y" };
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.place = figure.querySelector(".plot");
      this.readout = figure.querySelector(".readout");
      this.tip = document.createElement("div");
      this.tip.className = "tip hidden";
      this.place.append(this.tip);
      this.data = read(figure);
      this.state = { x: "number", log: true };
      figure.querySelectorAll("[data-set]").forEach((button) => {
        button.addEventListener("click", () => {
          const [name, value] = button.dataset.set.split("=");
          this.state[name] = name === "log" ? value === "true" : value;
          figure.querySelectorAll('[data-set^="' + name + '="]').forEach((other) => {
            other.setAttribute("aria-pressed", String(other === button));
          });
          this.draw();
        });
      });
      this.place.tabIndex = 0;
      this.place.addEventListener("keydown", (event) => this.key(event));
      this.place.addEventListener("click", () => this.open());
      new ResizeObserver(() => this.resize()).observe(this.place);
      this.draw();
      charts.add(this);
    }

    resize() {
      const width = this.place.clientWidth, height = this.place.clientHeight;
      if (this.plot && width > 0 && (width !== this.plot.width || height !== this.plot.height)) {
        this.plot.setSize({ width, height });
      }
    }

    update(data) {
      this.data = data;
      this.draw();
    }

    draw() {
      if (this.plot) this.plot.destroy();
      const built = this.data && this.build();
      this.plot = null;
      if (!built) return;
      const size = { width: this.place.clientWidth || 600, height: this.place.clientHeight || 340 };
      this.plot = new uPlot({ ...size, ...built.options }, built.data, this.place);
      this.place.append(this.tip);
      this.tip.classList.add("hidden");
    }

    key(event) {
      if (!this.plot || !["ArrowLeft", "ArrowRight", "Home", "End", "Enter"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Enter") return this.open();
      const last = this.plot.data[0].length - 1;
      const at = this.at === undefined || this.at === null ? -1 : this.at;
      const next = { ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(last, at + 1), Home: 0, End: last }[event.key];
      this.show(next, true);
    }

    show(at, byKey) {
      const words = at === null || at === undefined ? null : this.words(at);
      this.at = words ? at : null;
      this.tip.classList.toggle("hidden", !words);
      if (!words) return;
      this.tip.textContent = words;
      if (this.readout && byKey) this.readout.textContent = words;
      const left = this.plot.valToPos(this.plot.data[0][at], "x");
      const box = this.plot.over, wide = this.tip.offsetWidth;
      const x = box.offsetLeft + (left + wide + 20 > box.clientWidth ? left - wide - 10 : left + 12);
      this.tip.style.left = Math.max(0, x) + "px";
      this.tip.style.top = box.offsetTop + 6 + "px";
    }

    open() {
      const link = this.at === undefined || this.at === null ? null : this.link(this.at);
      if (link) window.location.href = link;
    }

    link() {
      return null;
    }
  }

  /* Every trial as a dot by its outcome, those without a time in lanes at the top, and the best so far as a stair. */
  class Course extends Chart {
    build() {
      const dots = this.data.dots, best = this.data.best, by = this.state.x;
      if (!dots.trial.length) return null;
      const order = dots[by].map((_, at) => at).sort((a, b) => dots[by][a] - dots[by][b]);
      this.order = order;
      const x = order.map((at) => dots[by][at]);
      const times = dots.time_ns.filter((ns) => ns !== null).concat(best.time_ns);
      const low = times.length ? Math.min(...times) : 1, high = times.length ? Math.max(...times) : 10;
      const present = OUTCOMES.filter((outcome) => dots.outcome.includes(outcome));
      const lanes = present.filter((outcome) => order.some((at) => dots.outcome[at] === outcome && dots.time_ns[at] === null));
      const data = [x], series = [{}];
      for (const outcome of present) {
        const own = (at) => dots.outcome[at] === outcome;
        const dot = { show: true, size: order.length > 800 ? 4 : 6, width: 0, fill: () => colour(outcome) };
        const line = { paths: () => null, stroke: () => colour(outcome), points: dot };
        data.push(order.map((at) => (own(at) ? dots.time_ns[at] : null)));
        series.push({ label: outcome, scale: "y", ...line });
        if (lanes.includes(outcome)) {
          const height = 0.985 - 0.035 * lanes.indexOf(outcome);
          data.push(order.map((at) => (own(at) && dots.time_ns[at] === null ? height : null)));
          series.push({ label: outcome, scale: "lane", ...line });
        }
      }
      let step = 0, now = null;
      const stairs = best[by].map((at, place) => [at, best.time_ns[place]]).sort((a, b) => a[0] - b[0] || b[1] - a[1]);
      data.push(x.map((at) => {
        while (step < stairs.length && stairs[step][0] <= at) now = stairs[step++][1];
        return now;
      }));
      series.push({
        label: "best so far", scale: "y", stroke: () => colour("best"), width: 2, points: { show: false },
        paths: uPlot.paths.stepped({ align: 1 }),
      });
      const room = 0.05 + 0.04 * lanes.length;
      const log = this.state.log;
      const range = () => {
        if (!log) return [0, high * (1 + room * 1.3)];
        const known = Math.log10(high / low), span = Math.max(known, 0.3); // times that are alike, or one, have marks beside them too
        const first = Math.log10(low) - (span - known) / 2;
        return [10 ** (first - 0.06 * span), 10 ** (first + (1.04 + 1.25 * room) * span)];
      };
      const options = {
        series,
        legend: { show: false },
        cursor: { points: { show: false }, drag: { x: true, y: false } },
        scales: {
          x: { time: false },
          y: { distr: log ? 3 : 1, range },
          lane: { range: () => [0, 1] },
        },
        axes: [
          by === "number" ? countAxis("trial") : axis("time of the search", (_, ticks) => ticks.map(duration)),
          times.length ? (log ? logAxis : plainAxis)("kernel time, median", time) : { scale: "y", show: false },
        ],
        hooks: { setCursor: [(plot) => this.show(plot.cursor.left < 0 ? null : plot.cursor.idx, false)] },
      };
      return { options, data };
    }

    words(at) {
      const dots = this.data.dots, place = this.order[at];
      const ns = dots.time_ns[place];
      const head = "trial " + dots.number[place] + ", after " + duration(dots.seconds[place]) + ": " + dots.outcome[place];
      return head + (ns === null ? "" : " " + time(ns)) + "\n" + pairs(dots.parameters, dots.configuration[place]);
    }

    link(at) {
      const base = this.figure.dataset.trials;
      return base ? base + this.data.dots.trial[this.order[at]] : null;
    }
  }

  /* Lines over a numeric axis, logarithmic where it spans more than a factor of eight; it marks what was measured, as far
     as there is room. */
  class Lines extends Chart {
    build() {
      const { lines, x_label: xLabel, y_label: yLabel, y_kind: kind } = this.data;
      const x = [...new Set(lines.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
      if (!x.length) return null;
      const ys = lines.flatMap((line) => line.points.map(([, y]) => y));
      const log = Math.max(...ys) > 20 * Math.min(...ys);
      const show = kind === "time" ? time : (value) => digits(value);
      this.shown = show;
      const data = [x, ...lines.map((line) => {
        const found = new Map(line.points);
        return x.map((at) => (found.has(at) ? found.get(at) : null));
      })];
      const series = [{}, ...lines.map((line, place) => ({
        label: line.label, scale: "y", stroke: () => colour("s" + (place % 7)), width: 2, spanGaps: true,
        points: { show: true, size: 7, fill: () => colour("s" + (place % 7)) },
      }))];
      const ratio = x[x.length - 1] / x[0];
      const wide = x.length > 1 && x[0] > 0 && ratio > 8;
      const apart = (low, high) => (wide ? Math.log(high / low) / Math.log(ratio) : (high - low) / (x[x.length - 1] - x[0]));
      const marks = (plot) => x.reduce((found, at) => {
        return found.length && apart(found[found.length - 1], at) < MARK / (plot.width - AXIS) ? found : [...found, at];
      }, []);
      const options = {
        series, legend: { show: false }, cursor: { drag: { x: false, y: false } },
        scales: {
          x: { time: false, distr: wide ? 3 : 1, log: 2, range: (_, low, high) => (wide ? [low / ratio ** 0.03, high * ratio ** 0.03] : low === high ? [low * 0.9, high * 1.1] : [low - (high - low) * 0.03, high + (high - low) * 0.03]) },
          y: { distr: log ? 3 : 1, range: (_, low, high) => (log ? [low * 0.8, high * 1.25] : [0, high * 1.08]) },
        },
        axes: [
          { ...axis(xLabel, (_, ticks) => ticks.map((tick) => digits(tick, 8))), splits: marks, filter: (_, ticks) => ticks },
          (log ? logAxis : plainAxis)(yLabel, show),
        ],
        hooks: { setCursor: [(plot) => this.show(plot.cursor.left < 0 ? null : plot.cursor.idx, false)] },
      };
      return { options, data };
    }

    words(at) {
      const rows = this.data.lines.map((line, place) => [line.label, this.plot.data[place + 1][at]]);
      const told = rows.filter(([, y]) => y !== null).map(([label, y]) => label + ": " + this.shown(y));
      return this.data.x_label + " " + this.plot.data[0][at] + "\n" + told.join("\n");
    }
  }

  const KINDS = { course: Course, lines: Lines };

  function start(root) {
    root.querySelectorAll("figure[data-chart]").forEach((figure) => {
      if (!figure.chart) figure.chart = new KINDS[figure.dataset.chart](figure);
    });
    root.querySelectorAll("[data-pairs]").forEach(choosePair);
  }

  /* Two lists choose which of the maps that are here is shown. */
  function choosePair(box) {
    const [across, down] = box.querySelectorAll("select");
    if (!across || !down || box.ready) return;
    box.ready = true;
    function choose() {
      const names = [across.value, down.value].sort().join("\n");
      box.querySelectorAll("[data-pair]").forEach((map) => {
        map.classList.toggle("hidden", map.dataset.pair !== names);
      });
      box.querySelector("[data-same]").classList.toggle("hidden", across.value !== down.value);
    }
    across.addEventListener("change", choose);
    down.addEventListener("change", choose);
    choose();
  }

  window.autotune = { start, charts };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));
  document.addEventListener("DOMContentLoaded", () => start(document));
})();
