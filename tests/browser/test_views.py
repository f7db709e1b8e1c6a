"""The page in a real browser: what each view shows, by mouse, by keyboard, and as it changes."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from browser.conftest import opened
from builders_bus import make_order, make_preemptor, make_victim
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import ClosedDomain, EvictionOrder, Void
from makeway.cli.history.story import Story
from makeway.cli.why.explanation import Explanation
from makeway.core.k8s.objects import PodCondition
from makeway.dev.samples import MESSAGES
from makeway.ui.edge.app import VIEWS
from ui_page import MadeUpPage

pytestmark = pytest.mark.browser


def go(page: Page, view: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=view).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(view)


def put_order(made_up: MadeUpPage, name: str, victim: str, **more: Any) -> None:
    """Let an order for a pod of that name come, with one victim."""
    now = datetime.now(UTC)
    made_up.put(
        make_order(
            f"uid-{name}",
            order_id=f"ord-{name}",
            decision_id=f"dec-{name}",
            created_at=now,
            not_after=now + timedelta(minutes=1),
            preemptor=make_preemptor(f"uid-{name}", name=name),
            victims=(make_victim(victim),),
            **more,
        )
    )


def test_the_address_loses_its_token_and_no_script_can_read_the_cookie(page: Page) -> None:
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""


def test_now_counts_what_is_in_flight_and_who_was_refused(page: Page) -> None:
    expect(page.locator(".tile")).to_have_count(4)
    refused = page.get_by_role("region", name="Pods and groups refused, by reason")
    expect(refused.get_by_role("row")).to_have_count(5)
    page.get_by_label("Namespace").fill("ml")
    page.get_by_label("Namespace").press("Tab")
    expect(page).to_have_url(re.compile("namespace=ml"))
    expect(refused.get_by_role("link").first).to_contain_text("ml/urgent")


def test_the_timeline_is_filtered_by_the_address_and_by_its_fields(page: Page, address: str) -> None:
    page.goto(f"{address}/timeline?result=failed&namespace=shop")
    rows = page.locator("table.timeline tbody tr")
    expect(rows.first).to_contain_text("shop/urgent")
    assert all("failed" in text for text in rows.all_inner_texts())
    page.get_by_label("Find").fill("no-such-thing")
    expect(page.get_by_text("There is no such entry.")).to_be_visible()
    expect(page).to_have_url(re.compile("find=no-such-thing"))
    page.get_by_label("Find").fill("")
    page.get_by_label("Result").select_option("refused")
    expect(rows.first).to_contain_text("refused")
    page.get_by_label("Result").select_option("")
    page.get_by_label("Namespace").fill("")
    page.get_by_role("button", name="Show 100 more").click()
    expect(rows).to_have_count(200)


def test_what_comes_is_shown_at_once_unless_the_page_is_paused(page: Page, made_up: MadeUpPage) -> None:
    go(page, "Timeline")

    def come(name: str) -> None:
        put_order(made_up, name, "<img src=x onerror=alert(1)>", node="<b>node</b>")

    come("late-1")
    row = page.locator("table.timeline tbody tr").first
    expect(row).to_contain_text("shop/late-1")
    expect(row).to_contain_text("<b>node</b>")
    expect(row).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("table.timeline img").count() == 0
    page.get_by_role("button", name="Live").click()
    come("late-2")
    page.wait_for_timeout(1200)
    expect(row).to_contain_text("shop/late-1")
    page.get_by_role("button", name="Paused").click()
    expect(row).to_contain_text("shop/late-2")


def test_the_grid_opens_a_node_and_says_what_is_in_the_way_of_a_pod(page: Page) -> None:
    go(page, "Cluster")
    expect(page.locator("details.group")).to_have_count(3)
    expect(page.locator("button.cell")).to_have_count(60)
    page.get_by_label("Pending pod").select_option("shop/waiting-2")
    expect(page.get_by_text("Insufficient cpu: 55 nodes")).to_be_visible()
    expect(page.get_by_text("Node is cordoned: 2 nodes")).to_be_visible()
    page.get_by_role("button", name=re.compile("^node-0005,.*cordoned.*Node is cordoned")).click()
    panel = page.get_by_role("complementary")
    expect(panel.get_by_role("heading", name="node-0005")).to_be_focused()
    expect(panel).to_contain_text("batch/crunch-5-0")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.get_by_label("Group by").select_option("node.kubernetes.io/instance-type")
    expect(page.locator("details.group")).to_have_count(2)


def test_queues_are_bars_with_their_numbers(page: Page) -> None:
    go(page, "Queues")
    rows = page.locator("table.queues tbody tr")
    expect(rows.nth(1)).to_contain_text("20 of 32 guaranteed 16")
    expect(rows.nth(2)).to_contain_text("41 of 41 full")
    expect(rows.nth(1).locator(".bar")).to_have_count(2)
    expect(rows.nth(0).locator(".bar")).to_have_count(0)
    expect(rows.nth(0)).to_contain_text("no max")
    rows.nth(1).locator("summary").click()
    expect(rows.nth(1).locator("pre")).to_contain_text("Guaranteed:")


def test_observe_sums_up_what_comparing_has_found(page: Page) -> None:
    go(page, "Observe")
    expect(page.locator(".tile").first).to_contain_text("Compared")
    page.get_by_label("Result").select_option("better")
    expect(page.locator("tbody tr").first).to_contain_text("better")


def test_a_pasted_pod_is_simulated_and_a_wrong_one_is_refused_in_words(page: Page) -> None:
    go(page, "Simulate")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text("Room can be made for it")).to_be_visible()
    expect(page.get_by_role("region", name="Victims").get_by_role("row").nth(1)).to_be_visible()
    page.get_by_label("Manifest", exact=True).fill("kind: Node")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("alert")).to_contain_text("no pods in it, only 1 Node")


def test_orders_and_decisions_for_a_group_name_it_and_what_victims_close(page: Page, address: str) -> None:
    order, decision = MESSAGES["order.group"], MESSAGES["decision.group"]
    assert isinstance(order, EvictionOrder)
    assert isinstance(decision, DecisionRecord)
    closed = ClosedDomain(rule="podAntiAffinity", key="example.com/rack", value="r1")
    order = replace(order, victims=(replace(order.victims[0], unit="", closes=closed),))
    found = Explanation(
        state="order",
        namespace="",
        name="",
        uid="",
        taken_by=(),
        made_room=(Story(order=order, outcome=None, decision=None),),
        pending=None,
        last_decision=decision,
    )
    told = msgspec.json.encode(found).decode()
    page.route("**/api/story*", lambda route: route.fulfill(body=told, content_type="application/json"))

    page.goto(f"{address}/story?what={order.order_id}")

    cards = page.locator("section.card")
    expect(cards).to_have_count(2)
    made, last = cards.nth(0), cards.nth(1)
    expect(made).to_contain_text("group shop/train-7 priority 1000")
    expect(made).to_contain_text("2 nodes, for 2 members")
    expect(made).to_contain_text("keeps example.com/rack=r1 closed to the group")
    expect(last).to_contain_text("group shop/train priority 1000")
    expect(last).to_contain_text("room for 2 members of 3")


def test_the_story_of_a_pending_pod_says_what_its_order_waits_for(page: Page, address: str) -> None:
    order = MESSAGES["order.full"]
    assert isinstance(order, EvictionOrder)
    found = Explanation(
        state="pending",
        namespace="shop",
        name="waiting-1",
        made_room=(Story(order=replace(order, void=Void(reason="nodeFull", message="others took it"))),),
        waits_for=PodCondition(type="x", status="True", reason="OverCaps", message="until 12:00"),
        leaving=2,
        brake="the brake is set everywhere",
    )
    told = msgspec.json.encode(found).decode()
    page.route("**/api/story*", lambda route: route.fulfill(body=told, content_type="application/json"))

    page.goto(f"{address}/story?what=shop/waiting-1")

    made, waits = page.locator("section.card").nth(0), page.locator("section.card").nth(1)
    expect(made).to_contain_text("never: it was not stored")
    expect(made).to_contain_text("Node full: others took it")
    for text in ("OverCaps: until 12:00", "2 evicted pods to leave", "the brake is set everywhere"):
        expect(waits).to_contain_text(text)


def test_everything_can_be_reached_by_keyboard_and_the_focus_is_seen(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("link", name="Now", exact=True).focus()
    for _ in range(2):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Cluster")).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Cluster")).to_be_focused()
    expect(page.locator("button.cell").first).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(page.locator("details.group > summary").first).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("button.cell").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("button.cell").nth(1)).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    expect(page.locator("details.group > summary").nth(1)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.node"), "the focus goes back to the node"
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Now")).to_be_focused()


def test_every_view_says_in_its_head_whether_pods_are_evicted(page: Page, made_up: MadeUpPage) -> None:
    mode = page.get_by_role("banner").locator("#mode")
    expect(mode).to_have_text("mode enforce")
    go(page, "Queues")
    parts = made_up.reader.parts
    assert parts
    made_up.reader.parts = [replace(one, mode="off", brake="everywhere", trouble="no lease") for one in parts]
    try:
        expect(mode).to_have_text("mode off, braked everywhere", timeout=10_000)
        go(page, "Now")
        components = page.get_by_role("region", name="Components of makeway that answer")
        expect(components).to_contain_text("no lease; braked: everywhere", timeout=10_000)
    finally:
        made_up.reader.parts = parts
    expect(mode).to_have_text("mode enforce", timeout=10_000)


def test_nothing_is_counted_before_the_streams_have_been_read(browser: Browser) -> None:
    unread = MadeUpPage(count=3, nodes=3, loaded=False)
    with unread.served() as where:
        context, page, complaints = opened(browser, where)
        expect(page.locator(".tile b")).to_have_text(["…"] * 4)
        go(page, "Timeline")
        expect(page.locator(".count")).to_contain_text("loading")
        go(page, "Observe")
        expect(page.get_by_text("The streams are being read.")).to_be_visible()
        expect(page.get_by_label("Result")).to_contain_text(re.compile("better", re.IGNORECASE))
        expect(page.get_by_label("Result")).not_to_contain_text("0")
        go(page, "Cluster")
        expect(page.locator(".count")).to_contain_text("evictions are being read")
        unread.reader.timeline.complete()
        expect(page.locator(".count")).to_contain_text("evictions in the last hour")
        expect(page.locator(".count")).not_to_contain_text("being read")
        go(page, "Now")
        expect(page.locator(".tile b").first).to_have_text(re.compile("[0-9]+"))
        context.close()
    assert complaints == []


def test_the_timeline_counts_as_room_made_what_the_first_view_counts(page: Page, made_up: MadeUpPage) -> None:
    put_order(made_up, "waits", "leaving")
    room = page.locator(".tile", has_text="Room made").locator("b")
    expect(room).to_have_text(re.compile("[0-9]+"))
    made = room.inner_text()

    go(page, "Timeline")

    expect(page.locator("table.timeline tbody tr", has_text="shop/waits")).to_be_visible()
    counted = page.locator(".legend span").filter(has_text=re.compile(f"^Room made {made}$"))
    expect(counted).to_have_count(1)


def test_a_victim_leads_to_its_story_and_its_command_can_be_copied(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page.goto(f"{address}/timeline?result=succeeded")
    row = page.locator("table.timeline tbody tr").first
    victim = row.get_by_role("link", name=re.compile("^batch.crunch")).first
    named = victim.inner_text()
    row.get_by_role("button", name=re.compile("^Copy kubectl makeway why -n batch crunch")).click()
    copied = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[0] == f"kubectl makeway why -n batch {named.removeprefix('batch/')}"

    victim.click()

    expect(page.get_by_role("heading", level=2)).to_contain_text(f"{named} was preempted")
    expect(page.get_by_role("heading", level=3)).to_contain_text("Preempted by order ord-")
    expect(page.get_by_role("region", name="Victims")).to_contain_text("this pod")


def test_what_is_no_name_of_kubernetes_is_put_into_no_command(page: Page, made_up: MadeUpPage) -> None:
    put_order(made_up, "sly", "x; rm -rf ~")
    go(page, "Timeline")
    row = page.locator("table.timeline tbody tr", has_text="shop/sly")
    expect(row).to_contain_text("x; rm -rf ~")
    expect(row.get_by_role("button")).to_have_count(0)


def test_times_have_a_date_and_a_zone(page: Page) -> None:
    go(page, "Timeline")
    when = re.compile(r"20\d\d.*(UTC|GMT|[A-Z]{3,4})")
    expect(page.locator("figcaption > span").first).to_have_text(when)
    expect(page.locator("figcaption > span").last).to_have_text(when)
    expect(page.locator("tbody time").first).to_have_attribute("title", when)


def test_the_head_is_low_on_a_phone_whatever_the_mode(page: Page, made_up: MadeUpPage) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    height = "document.querySelector('.top').getBoundingClientRect().height"
    assert page.evaluate(height) <= 80
    parts = made_up.reader.parts
    assert parts
    made_up.reader.parts = [replace(one, mode="off", brake="everywhere") for one in parts]
    try:
        expect(page.locator("#mode")).to_have_text("mode off, braked everywhere", timeout=10_000)
        assert page.evaluate(height) <= 80
    finally:
        made_up.reader.parts = parts


@pytest.mark.parametrize(
    "path", [*VIEWS, "/story?what=ord-00000004", "/story?what=shop/waiting-2", "/cluster?node=node-0005"]
)
def test_nothing_is_wider_than_a_small_screen(page: Page, address: str, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(f"{address}{path}")
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_simulated_pod_is_no_wider_than_a_small_screen(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(f"{address}/simulate")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text("Room can be made for it")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(
    ("cluster", "hint"), [(True, "Does a pod of makeway-ui run"), (False, "Is `makeway ui` still running?")]
)
def test_where_the_server_is_away_what_serves_the_page_is_named(
    browser: Browser, address: str, cluster: bool, hint: str
) -> None:
    context, page, _ = opened(browser, address)
    page.route("**/api/session", lambda route: route.fulfill(json={"user": "ann", "form": cluster}))
    page.goto(f"{address}/")
    expect(page.locator("#logout")).to_be_visible(visible=cluster)
    page.route("**/api/queues", lambda route: route.abort())

    go(page, "Queues")

    expect(page.get_by_role("alert")).to_contain_text(hint)
    context.close()
