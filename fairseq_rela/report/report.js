"use strict";
// Attention of one sentence, in two views. Everything comes from the JSON in this page; text is only set as text.
(function () {
  var SITES = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "cross-attention" };
  var BLUES = [[219, 233, 246], [107, 174, 214], [8, 81, 156], [4, 31, 69]];
  var REDS = [[253, 224, 200], [230, 140, 60], [166, 70, 0], [80, 30, 0]];
  var SVG = "http://www.w3.org/2000/svg";
  var runs = JSON.parse(document.getElementById("examples").textContent);
  var place = document.getElementById("views");
  var linked = document.getElementById("linked");
  var shared = document.getElementById("shared-scale");
  if (!runs.length || !place) { return; }

  function element(name, attributes, text) {
    var made = document.createElement(name);
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    if (text !== undefined) { made.textContent = text; }
    return made;
  }

  function draw(parent, name, attributes, text) {
    var made = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    if (text !== undefined) { made.textContent = text; }
    parent.appendChild(made);
    return made;
  }

  function half(bits) {  // a number of 16 bits, as numpy.float16 has it
    var sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 0) { return sign * fraction * Math.pow(2, -24); }
    return sign * (1 + fraction / 1024) * Math.pow(2, exponent - 15);
  }

  function unpack(layer) {  // {heads, data} to an array of heads, each a flat array
    if (!layer.unpacked) {
      var bytes = atob(layer.data), size = bytes.length / 2 / layer.heads;
      layer.unpacked = [];
      for (var h = 0; h < layer.heads; h += 1) {
        var head = new Array(size);
        for (var i = 0; i < size; i += 1) {
          var at = 2 * (h * size + i);
          head[i] = half(bytes.charCodeAt(at) | (bytes.charCodeAt(at + 1) << 8));
        }
        layer.unpacked.push(head);
      }
    }
    return layer.unpacked;
  }

  function colour(share, stops) {
    var at = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    var parts = stops[low].map(function (value, i) {
      return Math.round(value + (stops[low + 1][i] - value) * (at - low));
    });
    return "rgb(" + parts.join(",") + ")";
  }

  function show(value) {
    if (value === 0) { return "exactly 0"; }
    if (Math.abs(value) < 1e-4) { return (value < 0 ? "\u2212" : "") + "below 0.0001"; }
    return Number(value.toPrecision(3)).toString().replace("-", "\u2212");
  }

  function width(text) {  // in pixels, about
    var sum = 0;
    for (var i = 0; i < text.length; i += 1) { sum += text.charCodeAt(i) > 0x2e7f ? 12.5 : 7; }
    return sum;
  }

  function short(text) { return text.length > 24 ? text.slice(0, 23) + "\u2026" : text; }

  function fill(select, options, wanted) {  // options: [value, text]
    select.textContent = "";
    options.forEach(function (option) { select.appendChild(element("option", { value: option[0] }, option[1])); });
    var values = options.map(function (option) { return String(option[0]); });
    select.value = values.indexOf(String(wanted)) >= 0 ? String(wanted) : values[0];
  }

  function range(length) { return Array.from({ length: length }, function (_, i) { return i; }); }

  function View(number, start) {
    var view = this;
    this.number = number;
    this.wanted = start;
    this.root = element("section", { class: "view", "aria-label": "View " + (number ? "B" : "A") });
    this.controls = element("div", { class: "controls" });
    this.map = element("div", { class: "map" });
    this.readout = element("p", { class: "readout", "aria-live": "polite", id: "readout-" + number });
    this.selects = {};
    ["run", "sentence", "site", "layer", "head"].forEach(function (name) {
      var label = element("label", {}, name === "run" ? (number ? "View B: run" : "View A: run") : name);
      var select = element("select", {});
      select.addEventListener("change", function () { view.choose(name, select.value); });
      label.appendChild(select);
      view.controls.appendChild(label);
      view.selects[name] = select;
    });
    [this.controls, this.map, this.readout].forEach(function (part) { view.root.appendChild(part); });
    place.appendChild(this.root);
    this.fill();
  }

  View.prototype.choose = function (name, value) {
    this.wanted[name] = value;
    this.fill();
    if (linked.checked && name !== "run") {
      views.forEach(function (other) {
        if (other !== this) { other.wanted[name] = value; other.fill(); }
      }, this);
    }
    drawAll();
  };

  View.prototype.fill = function () {  // the choices that there are, and of them the ones that are wanted
    var s = this.selects, w = this.wanted;
    fill(s.run, runs.map(function (run, i) { return [i, run.name]; }), w.run);
    var run = runs[Number(s.run.value)];
    fill(s.sentence, run.sentences.map(function (one) {
      return [one.id, one.id + ": " + short(one.source.join(" "))];
    }), w.sentence);
    this.sentence = run.sentences.filter(function (one) { return String(one.id) === s.sentence.value; })[0];
    var there = Object.keys(SITES).filter(function (site) { return this.sentence.weights[site]; }, this);
    fill(s.site, there.map(function (site) { return [site, SITES[site]]; }), w.site);
    var layers = this.sentence.weights[s.site.value];
    var last = Math.min(Number(w.layer), layers.length - 1);
    fill(s.layer, range(layers.length).map(function (i) { return [i, i + 1]; }), last);
    this.layer = layers[Number(s.layer.value)];
    var heads = range(this.layer.heads).map(function (i) { return [i, i + 1]; });
    fill(s.head, [["mean", "mean over heads"]].concat(heads), w.head);
    this.prepare();
  };

  View.prototype.prepare = function () {
    var site = this.selects.site.value, heads = unpack(this.layer), head = this.selects.head.value;
    this.queries = site === "encoder" ? this.sentence.source : this.sentence.target;
    this.keys = site === "decoder" ? this.sentence.target : this.sentence.source;
    this.causal = site === "decoder";
    this.weights = head !== "mean" ? heads[Number(head)] : heads[0].map(function (_, i) {
      return heads.reduce(function (sum, one) { return sum + one[i]; }, 0) / heads.length;
    });
    var columns = this.keys.length, weights = this.weights;
    this.nulls = this.queries.map(function (_, row) {
      return weights.slice(row * columns, (row + 1) * columns).every(function (value) { return value === 0; });
    });
    this.top = weights.reduce(function (top, value) { return Math.max(top, Math.abs(value)); }, 0);
    this.cursor = [0, 0];
  };

  View.prototype.draw = function (top) {
    var view = this, rows = this.queries.length, columns = this.keys.length;
    var cell = Math.max(11, Math.min(26, Math.floor(330 / Math.max(rows, columns))));
    var left = 30 + Math.max.apply(null, this.queries.map(function (text) { return width(short(text)); }));
    var above = 14 + Math.max.apply(null, this.keys.map(function (text) { return width(short(text)); }));
    var nulls = this.nulls.filter(Boolean).length;
    this.map.textContent = "";
    var svg = draw(this.map, "svg", {
      width: left + columns * cell + 12, height: above + rows * cell + 62, tabindex: 0, role: "img",
      "aria-label": "Attention weights, " + rows + " queries by " + columns + " keys; arrow keys move the cell",
      "aria-describedby": "readout-" + this.number,
    });
    var defs = draw(svg, "defs", {}), pattern = draw(defs, "pattern", {
      id: "hatch-" + this.number, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    });
    draw(pattern, "rect", { width: 6, height: 6, fill: "#fff" });
    draw(pattern, "line", { x1: 0, y1: 0, x2: 0, y2: 6, stroke: "#808080", "stroke-width": 1.6 });
    var gradient = draw(defs, "linearGradient", { id: "scale-" + this.number });
    BLUES.forEach(function (_, i) {
      draw(gradient, "stop", { offset: i / 3, "stop-color": colour(i / 3, BLUES) });
    });
    this.names = { rows: [], columns: [] };
    this.keys.forEach(function (text, column) {
      var x = left + (column + 0.5) * cell + 4, y = above - 6;
      view.names.columns.push(draw(svg, "text", { x: x, y: y, transform: "rotate(-90 " + x + " " + y + ")" }, short(text)));
    });
    this.queries.forEach(function (text, row) {
      var name = short(text) + (view.nulls[row] ? " \u2205" : "");
      view.names.rows.push(draw(svg, "text", {
        x: left - 6, y: above + (row + 0.5) * cell + 4, "text-anchor": "end",
      }, name));
      view.drawRow(svg, row, columns, left, above, cell, top);
    });
    draw(svg, "rect", {
      x: left, y: above, width: columns * cell, height: rows * cell, fill: "none", stroke: "#767676",
    });
    this.frame = draw(svg, "rect", { width: cell, height: cell, fill: "none", stroke: "#d00000", "stroke-width": 2.5 });
    this.frame.setAttribute("visibility", "hidden");
    this.drawScale(svg, above + rows * cell + 14, top);
    this.origin = [left, above, cell];
    this.listen(svg);
    this.readout.textContent = nulls + " of " + rows + " queries are null. Point at a cell, or use the arrow keys.";
  };

  View.prototype.drawRow = function (svg, row, columns, left, above, cell, top) {
    var end = this.causal ? row + 1 : columns, y = above + row * cell;
    if (this.nulls[row]) {
      draw(svg, "rect", {
        x: left, y: y, width: end * cell, height: cell, fill: "url(#hatch-" + this.number + ")", stroke: "#b0b0b0",
      });
    }
    if (end < columns) {
      draw(svg, "rect", { x: left + end * cell, y: y, width: (columns - end) * cell, height: cell, fill: "#e9e9e9" });
    }
    for (var column = 0; column < end; column += 1) {
      var value = this.weights[row * columns + column];
      if (value !== 0) {
        draw(svg, "rect", {
          x: left + column * cell + 0.5, y: y + 0.5, width: cell - 1, height: cell - 1,
          fill: colour(Math.abs(value) / (top || 1), value < 0 ? REDS : BLUES),
        });
      }
      if (value < 0) {
        draw(svg, "text", { x: left + (column + 0.5) * cell, y: y + cell / 2 + 4, "text-anchor": "middle" }, "\u2212");
      }
    }
  };

  View.prototype.drawScale = function (svg, y, top) {
    draw(svg, "rect", { x: 8, y: y, width: 90, height: 10, fill: "url(#scale-" + this.number + ")" });
    draw(svg, "text", { x: 8, y: y + 25 }, "above 0");
    draw(svg, "text", { x: 98, y: y + 25, "text-anchor": "end" }, show(top).replace("exactly ", ""));
    draw(svg, "rect", { x: 116, y: y, width: 14, height: 10, fill: "#fff", stroke: "#767676" });
    draw(svg, "text", { x: 134, y: y + 9 }, "0");
    draw(svg, "rect", {
      x: 152, y: y, width: 22, height: 10, fill: "url(#hatch-" + this.number + ")", stroke: "#767676",
    });
    draw(svg, "text", { x: 178, y: y + 9 }, "\u2205 null query");
    if (this.causal) {
      draw(svg, "rect", { x: 152, y: y + 17, width: 22, height: 10, fill: "#e9e9e9" });
      draw(svg, "text", { x: 178, y: y + 26 }, "future");
    }
    var needed = 270;
    if (Number(svg.getAttribute("width")) < needed) { svg.setAttribute("width", needed); }
  };

  View.prototype.listen = function (svg) {
    var view = this;
    svg.addEventListener("mousemove", function (event) {
      var box = svg.getBoundingClientRect();
      var column = Math.floor((event.clientX - box.left - view.origin[0]) / view.origin[2]);
      var row = Math.floor((event.clientY - box.top - view.origin[1]) / view.origin[2]);
      if (row >= 0 && column >= 0 && row < view.queries.length && column < view.keys.length) { view.point(row, column); }
    });
    svg.addEventListener("focus", function () { view.point(view.cursor[0], view.cursor[1]); });
    svg.addEventListener("keydown", function (event) {
      var moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }, move = moves[event.key];
      if (!move) { return; }
      event.preventDefault();
      view.point(
        Math.max(0, Math.min(view.queries.length - 1, view.cursor[0] + move[0])),
        Math.max(0, Math.min(view.keys.length - 1, view.cursor[1] + move[1]))
      );
    });
  };

  View.prototype.point = function (row, column) {
    var view = this, value = this.weights[row * this.keys.length + column];
    this.names.rows[this.cursor[0]].removeAttribute("class");
    this.names.columns[this.cursor[1]].removeAttribute("class");
    this.cursor = [row, column];
    this.names.rows[row].setAttribute("class", "chosen");
    this.names.columns[column].setAttribute("class", "chosen");
    this.frame.setAttribute("x", this.origin[0] + column * this.origin[2]);
    this.frame.setAttribute("y", this.origin[1] + row * this.origin[2]);
    this.frame.setAttribute("visibility", "visible");
    var what = this.causal && column > row ? "in the future" : show(value);
    this.readout.textContent = "query " + (row + 1) + " \u201c" + this.queries[row] + "\u201d, key " + (column + 1) +
      " \u201c" + this.keys[column] + "\u201d: " + what + (view.nulls[row] ? " (\u2205 this query is null)" : "");
  };

  function drawAll() {
    var together = Math.max.apply(null, views.map(function (view) { return view.top; }));
    views.forEach(function (view) { view.draw(shared.checked ? together : view.top); });
  }

  var second = runs.length > 1 && runs[1].group === runs[0].group ? 1 : 0;
  linked.checked = second === 1;
  var views = [];
  views.push(new View(0, { run: 0, site: "cross", layer: Infinity, head: "mean" }));
  views.push(new View(1, { run: second, site: "cross", layer: Infinity, head: second ? "mean" : "0" }));
  linked.addEventListener("change", function () {
    if (linked.checked) { ["sentence", "site", "layer", "head"].forEach(function (name) {
      views[1].wanted[name] = views[0].selects[name].value;
    }); views[1].fill(); drawAll(); }
  });
  shared.addEventListener("change", drawAll);
  drawAll();
}());
