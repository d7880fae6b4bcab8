import os
from pathlib import Path

from clockgated.tuning.model import Owner, OwnerKind
from clockgated.tuning.sysctl_files import SysctlFile, dotted, merged, owner_of, read_files
from hypothesis import given
from hypothesis import strategies as st
from support.tuning_tree import Tree

RMEM = "net.core.rmem_max"


def winners(tree: Tree) -> dict[str, Owner]:
    return dict(merged(*read_files(tree.roots.root)))


def test_the_order_of_names_decides_not_the_folder(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("root/usr/lib/sysctl.d/z.conf", f"{RMEM} = 1\n")
    tree.write("root/etc/sysctl.d/a.conf", f"{RMEM} = 2\n")
    assert winners(tree)[RMEM] == Owner(OwnerKind.VENDOR_FILE, "/usr/lib/sysctl.d/z.conf:1", "1")
    tree.write("root/etc/sysctl.d/zz.conf", f"{RMEM} = 3\n")
    tree.write("root/usr/lib/sysctl.d/b.conf", f"{RMEM} = 4\n")
    assert winners(tree)[RMEM].place == "/etc/sysctl.d/zz.conf:1"


def test_of_files_with_one_name_the_one_in_etc_wins(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for folder, value in (("usr/lib", 1), ("usr/local/lib", 2), ("run", 3), ("etc", 4)):
        tree.write(f"root/{folder}/sysctl.d/50-net.conf", f"# mine\n{RMEM}={value}\n")
        assert winners(tree)[RMEM].value == str(value)
    assert winners(tree)[RMEM].place == "/etc/sysctl.d/50-net.conf:2"


def test_sysctl_conf_beats_a_site_file_through_debians_link(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("root/etc/sysctl.d/60-site.conf", "net.ipv4.ip_forward=1\n")
    tree.write("root/etc/sysctl.conf", "net.ipv4.ip_forward=0\n")
    (tmp_path / "root/etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
    won = winners(tree)["net.ipv4.ip_forward"]
    assert (won.value, won.place) == ("0", "/etc/sysctl.d/99-sysctl.conf:1")


def test_without_the_link_sysctl_conf_speaks_only_where_nobody_else_does(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("root/etc/sysctl.d/60-site.conf", "net.ipv4.ip_forward=1\n")
    tree.write("root/etc/sysctl.conf", "net.ipv4.ip_forward=0\nvm.swappiness=10\n")
    assert winners(tree)["net.ipv4.ip_forward"].value == "1"
    assert winners(tree)["vm.swappiness"].place == "/etc/sysctl.conf:2"


def test_a_name_after_99_sysctl_loses_to_nobody_but_before_it_does(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("root/etc/sysctl.conf", f"{RMEM}=262144\n")
    (tmp_path / "root/etc/sysctl.d").mkdir(parents=True)
    (tmp_path / "root/etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
    tree.write("root/etc/sysctl.d/99-lan.conf", f"{RMEM}=8388608\n")
    assert winners(tree)[RMEM].value == "262144"
    tree.write("root/etc/sysctl.d/99-zz.conf", f"{RMEM}=8388608\n")
    assert winners(tree)[RMEM].place == "/etc/sysctl.d/99-zz.conf:1"


def test_a_link_to_dev_null_masks_the_packages_file(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("root/usr/lib/sysctl.d/50-net.conf", f"{RMEM}=1\n")
    (tmp_path / "root/etc/sysctl.d").mkdir(parents=True)
    (tmp_path / "root/etc/sysctl.d/50-net.conf").symlink_to(os.devnull)
    assert winners(tree) == {}


def test_a_pattern_fits_what_no_line_names() -> None:
    text = "net.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.lo.rp_filter = 0\n; a comment\n"
    found = merged([SysctlFile("/etc/sysctl.d/a.conf", text)])
    for key, value in (("net.ipv4.conf.eth0.rp_filter", "2"), ("net.ipv4.conf.lo.rp_filter", "0")):
        owner = owner_of(key, found)
        assert owner is not None
        assert owner.value == value
    assert owner_of("net.ipv4.conf.eth0.forwarding", found) is None


def test_slashes_may_separate() -> None:
    assert dotted("net/ipv4/conf/eth0.100/rp_filter") == "net.ipv4.conf.eth0/100.rp_filter"
    assert dotted("net.ipv4.conf.eth0/100.rp_filter") == "net.ipv4.conf.eth0/100.rp_filter"


def test_the_last_line_of_a_file_wins_and_is_named() -> None:
    owner = merged([SysctlFile("/etc/sysctl.d/a.conf", "a.b = 1\n\na.b =\t2\t3\n")])["a.b"]
    assert owner == Owner(OwnerKind.ADMIN_FILE, "/etc/sysctl.d/a.conf:3", "2 3")


@given(st.lists(st.tuples(st.text(), st.text()), max_size=4), st.text())
def test_any_text_is_read_without_an_error(files: list[tuple[str, str]], key: str) -> None:
    found = merged([SysctlFile(f"/etc/sysctl.d/{name}", text) for name, text in files])
    owner_of(key, found)
