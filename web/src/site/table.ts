// Tables that readers sort by their column heads.
import { element } from "../page/dom";
import type { Content } from "./parts";

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => Content;
  /** What sorting goes by; a column without it cannot be sorted by. Missing values come last. */
  readonly by?: (row: Row) => number | string | null;
  readonly numeric?: boolean;
  /** Best values first when a reader asks for the column. */
  readonly descending?: boolean;
  /** Left out on narrow screens. */
  readonly optional?: boolean;
  /** The cell that names the row. */
  readonly header?: boolean;
  readonly explain?: string;
}

export interface TableOptions<Row> {
  /** Read out in place of the table; seen only by those who ask for it. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rowClass?: (row: Row) => string;
  /** Rows shown until the reader asks for more. */
  readonly limit?: number;
}

export class DataTable<Row> {
  readonly root: HTMLElement;
  private readonly body = element("tbody");
  private readonly heads: HTMLTableCellElement[];
  private readonly more = element("button", { class: "button", type: "button", hidden: true });
  private rows: readonly Row[] = [];
  private limit: number;
  private sorted: { column: Column<Row>; descending: boolean } | null = null;

  constructor(
    private readonly options: TableOptions<Row>,
    rows: readonly Row[] = [],
  ) {
    this.limit = options.limit ?? 200;
    this.heads = options.columns.map((column) => this.head(column));
    const table = element(
      "table",
      { "aria-label": options.label },
      element("thead", {}, element("tr", {}, ...this.heads)),
    );
    table.append(this.body);
    // A region that scrolls must be reachable by keyboard.
    const region = element(
      "div",
      { class: "scroll", role: "region", "aria-label": options.label, tabindex: "0" },
      table,
    );
    this.root = element("div", {}, region, this.more);
    this.more.addEventListener("click", () => {
      this.limit *= 4;
      this.draw();
    });
    this.show(rows);
  }

  /** Replaces the rows; the order that the reader chose stays, and so does the focus. */
  show(rows: readonly Row[]): void {
    this.rows = rows;
    const focused = this.body.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
    this.draw();
    if (focused) this.body.querySelector<HTMLElement>(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  private draw(): void {
    const rows = this.inOrder();
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.line(row)));
    this.more.hidden = rows.length <= this.limit;
    this.more.textContent = `Show more of ${rows.length}`;
  }

  private inOrder(): readonly Row[] {
    const by = this.sorted?.column.by;
    if (!this.sorted || !by) return this.rows;
    const sign = this.sorted.descending ? -1 : 1;
    return [...this.rows].sort((a, b) => {
      const [left, right] = [by(a), by(b)];
      if (left === null || right === null) return Number(left === null) - Number(right === null);
      return sign * (typeof left === "string" ? left.localeCompare(String(right)) : left - Number(right));
    });
  }

  private head(column: Column<Row>): HTMLTableCellElement {
    const cell = element("th", {
      scope: "col",
      class: cellClass(column),
      ...(column.explain && { title: column.explain }),
    });
    if (!column.by) {
      cell.append(column.name);
      return cell;
    }
    const button = element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => this.sortBy(column));
    cell.append(button);
    return cell;
  }

  private sortBy(column: Column<Row>): void {
    const again = this.sorted?.column === column;
    this.sorted = { column, descending: again ? !this.sorted?.descending : Boolean(column.descending) };
    this.heads.forEach((head, i) => {
      if (this.options.columns[i] !== column) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.sorted?.descending ? "descending" : "ascending");
    });
    this.draw();
  }

  private line(row: Row): HTMLTableRowElement {
    const cells = this.options.columns.map((column) => {
      const attributes = { class: cellClass(column), ...(column.header && { scope: "row" }) };
      return element(column.header ? "th" : "td", attributes, column.cell(row));
    });
    return element("tr", { class: this.options.rowClass?.(row) ?? "" }, ...cells);
  }
}

function cellClass<Row>(column: Column<Row>): string {
  return [column.numeric && "number", column.optional && "optional"].filter(Boolean).join(" ");
}
