// What a reader can do with the page: light and dark, axes, series, hover and keys on a chart, printing.
"use strict";

(() => {
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  const drawn = [];

  function make(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function toggle(text, isOn, onChange) {
    const button = make("button", "toggle", text);
    button.type = "button";
    button.setAttribute("aria-pressed", String(isOn));
    button.addEventListener("click", () => {
      const isNow = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isNow));
      onChange(isNow);
    });
    return button;
  }

  class Drawn {
    constructor(figure, chart) {
      this.chart = chart;
      this.box = figure.querySelector(".plot");
      this.reading = figure.querySelector(".reading");
      this.state = { isLogX: chart.x.isLog, isLogY: chart.y.isLog, hidden: new Set() };
      this.tip = make("div", "tip");
      this.tip.hidden = true;
      this.places = [...new Set(chart.series.filter((one) => one.role === "points" || one.role === "part").flatMap((one) => one.xs))]
        .sort((a, b) => a - b);
      this.at = -1;
      this.addControls(figure.querySelector(".controls"));
      this.box.addEventListener("keydown", (event) => this.onKey(event));
      this.box.addEventListener("pointerleave", () => this.leave());
      this.box.addEventListener("blur", () => this.leave());
      this.draw();
      new ResizeObserver(() => {
        if (this.plot && Math.abs(this.plot.width - Math.floor(this.box.clientWidth)) > 1) this.draw();
      }).observe(this.box);
    }

    addControls(bar) {
      const { chart, state } = this;
      chart.series.forEach((one, index) => {
        const button = toggle("", true, (isOn) => {
          if (isOn) state.hidden.delete(index);
          else state.hidden.add(index);
          this.draw();
        });
        const key = make("span", `key ${one.role} colour-${one.colour % 8}`);
        key.setAttribute("aria-hidden", "true");
        button.append(key, document.createTextNode(one.name));
        bar.append(button);
      });
      const axes = make("span", "axes");
      for (const [name, flag] of [["x", "isLogX"], ["y", "isLogY"]]) {
        if (chart.isStack || (name === "x" && chart.x.kind === "count")) continue;
        if (chart.y.kind === "share" && name === "y") continue;
        axes.append(toggle(`log ${name}`, state[flag], (isOn) => { state[flag] = isOn; this.draw(); }));
      }
      bar.append(axes);
      bar.hidden = false;
    }

    draw() {
      if (this.plot) this.plot.destroy();
      this.plot = drawChart(this.box, this.chart, this.state, (plot, lanes) => this.follow(plot, lanes));
      this.plot.over.append(this.tip);
      this.tip.hidden = true;
    }

    follow(plot) {
      if (plot.cursor.left === undefined || plot.cursor.left < 0) return;
      const distances = this.places.map((place) => Math.abs(this.position(place) - plot.cursor.left));
      this.show(distances.indexOf(Math.min(...distances)), false);
    }

    position(place) {
      return this.plot.valToPos(this.chart.isStack ? this.places.indexOf(place) : place, "x");
    }

    lines(place) {
      const found = [];
      this.chart.series.forEach((one, index) => {
        const at = one.xs.indexOf(place);
        if (at >= 0 && !this.state.hidden.has(index)) found.push([one, one.texts[at], one.places[at]]);
      });
      return found;
    }

    show(at, isSpoken) {
      if (at < 0 || at >= this.places.length) return;
      this.at = at;
      const place = this.places[at];
      const lines = this.lines(place);
      this.tip.replaceChildren();
      if (!lines.length) { this.tip.hidden = true; return; }
      this.tip.append(make("strong", "", `${this.chart.x.label}: ${lines[0][2]}`));
      for (const [one, text] of lines) {
        const line = make("div", "line");
        line.append(make("span", `key ${one.role} colour-${one.colour % 8}`), make("span", "name", one.name), make("b", "", text));
        this.tip.append(line);
      }
      this.tip.hidden = false;
      const room = this.plot.over.clientWidth;
      const left = this.position(place);
      const width = this.tip.offsetWidth;
      this.tip.style.left = `${Math.max(0, Math.min(left + 12 + width > room ? left - width - 12 : left + 12, room - width))}px`;
      if (isSpoken) {
        this.reading.textContent = `${lines[0][2]}: ${lines.map(([one, text]) => `${one.name} ${text}`).join("; ")}`;
      }
    }

    leave() {
      this.tip.hidden = true;
      this.reading.textContent = "";
    }

    onKey(event) {
      const last = this.places.length - 1;
      const to = { ArrowRight: Math.min(this.at + 1, last), ArrowLeft: Math.max(this.at - 1, 0), Home: 0, End: last }[event.key];
      if (event.key === "Escape") this.leave();
      if (to === undefined) return;
      event.preventDefault();
      this.show(to, true);
    }
  }

  function redraw() {
    for (const one of drawn) one.draw();
  }

  function addTheme() {
    const button = document.getElementById("theme");
    const root = document.documentElement;
    const isDark = () =>
      root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const name = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      name();
      redraw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });
    name();
    button.hidden = false;
  }

  // On paper: light, every table open; afterwards as it was.
  function addPrinting() {
    const root = document.documentElement;
    let before;
    addEventListener("beforeprint", () => {
      const closed = [...document.querySelectorAll("details:not([open])")];
      before = { theme: root.dataset.theme, closed };
      for (const each of closed) each.open = true;
      root.dataset.theme = "light";
      redraw();
    });
    addEventListener("afterprint", () => {
      if (!before) return;
      for (const each of before.closed) each.open = false;
      if (before.theme) root.dataset.theme = before.theme;
      else delete root.dataset.theme;
      before = undefined;
      redraw();
    });
  }

  for (const chart of charts) {
    const figure = [...document.querySelectorAll("figure[data-chart]")].find((each) => each.dataset.chart === chart.name);
    if (figure) drawn.push(new Drawn(figure, chart));
  }
  // With the charts drawn the tables need not stand open; without a script they do.
  for (const table of document.querySelectorAll("figure.chart > details")) table.open = false;
  addTheme();
  addPrinting();
})();
