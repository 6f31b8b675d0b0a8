//! Repositories in a repository: submodules, bare ones that are committed, and others that merely lie there.

use crate::hostile::{append, git};

cases! {
    bare_one_that_is_committed(hostile) {
        let bare = hostile.top.join("docs/x");
        git(&hostile.top, &["clone", "-q", "--bare", ".", "docs/x"]);
        let (evil, outside) = (hostile.evil(), hostile.outside().to_owned());
        let lines = format!(
            "[core]\n\tbare = false\n\tworktree = {}\n\tfsmonitor = {evil}\n\tpager = {evil}\n[diff]\n\texternal = {evil}\n",
            outside.display()
        );
        append(&bare.join("config"), lines.as_bytes());
        hostile.root = bare;
    }

    bare_one_alone(hostile) {
        let bare = hostile.top.with_file_name("bare");
        git(&hostile.top, &["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
        let evil = hostile.evil();
        append(&bare.join("config"), format!("[core]\n\tfsmonitor = {evil}\n\tsshCommand = {evil}\n").as_bytes());
        hostile.root = bare;
    }

    inside_of_the_git_directory(hostile) {
        hostile.root = hostile.of_git("objects");
    }

    /// With `diff.submodule=diff` git shows what changed in the submodule, by its settings.
    submodule_with_an_external_diff(hostile) {
        let evil = hostile.evil();
        let inner = hostile.submodule("inner");
        append(&inner.join(".git/config"), format!("[diff]\n\texternal = {evil}\n").as_bytes());
        std::fs::write(inner.join("inner.txt"), "INNER\n").unwrap();
        git(&inner, &["commit", "-q", "-am", "more"]);
        hostile.config("[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none\n[status]\n\tsubmoduleSummary = true\n");
        hostile.is_shown = true;
    }

    /// To see whether it changed, git would run itself in the submodule.
    submodule_with_a_monitor_and_filters(hostile) {
        let evil = hostile.evil();
        let inner = hostile.submodule("inner");
        append(&inner.join(".git/config"), format!("[core]\n\tfsmonitor = {evil}\n[filter \"x\"]\n\tclean = {evil}\n").as_bytes());
        std::fs::write(inner.join(".gitattributes"), "* filter=x\n").unwrap();
        std::fs::write(inner.join("inner.txt"), "INNER\n").unwrap();
        hostile.config("[diff]\n\tignoreSubmodules = none\n[submodule \"inner\"]\n\tignore = none\n\tactive = true\n");
        hostile.is_shown = true;
    }

    submodule_whose_head_is_a_secret(hostile) {
        let inner = hostile.submodule("inner");
        std::fs::remove_file(inner.join(".git/HEAD")).unwrap();
        std::os::unix::fs::symlink(hostile.secret_id(), inner.join(".git/HEAD")).unwrap();
        hostile.is_shown = true;
    }

    submodule_that_is_another_repository(hostile) {
        let inner = hostile.submodule("inner");
        std::fs::remove_dir_all(inner.join(".git")).unwrap();
        std::fs::write(inner.join(".git"), format!("gitdir: {}\n", hostile.private().join(".git").display())).unwrap();
        hostile.is_shown = true;
    }

    submodule_with_pipes(hostile) {
        hostile.submodule("inner");
        hostile.pipe("inner/.git/HEAD");
        hostile.is_shown = true;
    }

    nested_one_whose_references_are_a_link(hostile) {
        let inner = hostile.nested("inner");
        std::fs::remove_dir_all(inner.join(".git/refs/heads")).unwrap();
        std::os::unix::fs::symlink(hostile.secret(), inner.join(".git/packed-refs")).unwrap();
    }

    nested_one_whose_head_is_a_secret(hostile) {
        let inner = hostile.nested("inner");
        std::fs::remove_file(inner.join(".git/HEAD")).unwrap();
        std::os::unix::fs::symlink(hostile.secret_id(), inner.join(".git/HEAD")).unwrap();
        hostile.is_shown = true;
    }

    nested_one_that_is_another_repository(hostile) {
        hostile.write("inner/.git", format!("gitdir: {}\n", hostile.private().join(".git").display()));
        hostile.is_shown = true;
    }

    nested_one_with_programs(hostile) {
        let evil = hostile.evil();
        let inner = hostile.nested("inner");
        append(&inner.join(".git/config"), format!("[core]\n\tfsmonitor = {evil}\n[diff]\n\texternal = {evil}\n").as_bytes());
        hostile.is_shown = true;
    }
}
