//! Settings that name programs, other files or other places.

use crate::hostile::git;

cases! {
    filter_without_a_name(hostile) {
        let evil = hostile.evil();
        hostile.config(format!("[filter \"\"]\n\tclean = {evil}\n\tsmudge = {evil}\n\trequired = true\n"));
        hostile.attributes("* filter=\n");
        hostile.is_shown = true;
    }

    filter_whose_name_is_not_utf8(hostile) {
        let (evil, mut lines) = (hostile.evil(), b"[filter \"\xff\"]\n".to_vec());
        lines.extend(format!("\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n").bytes());
        hostile.config(lines);
        hostile.attributes(b"* filter=\xff\n");
        hostile.is_shown = true;
    }

    filter_that_is_a_process(hostile) {
        let evil = hostile.evil();
        hostile.config(format!("[filter \"x\"]\n\tprocess = {evil}\n\tclean = {evil}\n\tsmudge = {evil}\n\trequired\n"));
        hostile.write(".git/info/attributes", "* filter=x\n");
        hostile.is_shown = true;
    }

    /// What is in a file that is included is not seen by those who read the file alone.
    filter_in_an_included_file(hostile) {
        let evil = hostile.evil();
        hostile.write(".git/more", format!("[filter \"a.b\"]\n\tclean = {evil}\n\tsmudge = {evil}\n"));
        hostile.config("[include]\n\tpath = more\n[includeIf \"onbranch:**\"]\n\tpath = more\n");
        hostile.attributes("* filter=a.b\n");
        hostile.is_shown = true;
    }

    filter_of_one_worktree(hostile) {
        hostile.git(&["config", "extensions.worktreeConfig", "true"]);
        let evil = hostile.evil();
        hostile.git(&["config", "--worktree", "filter.w.clean", &evil]);
        hostile.git(&["config", "--worktree", "core.fsmonitor", &evil]);
        hostile.attributes("* filter=w\n");
        hostile.is_shown = true;
    }

    external_diff(hostile) {
        let evil = hostile.evil();
        hostile.config(format!("[diff]\n\texternal = {evil}\n"));
        hostile.is_shown = true;
    }

    diff_driver_without_a_name(hostile) {
        let evil = hostile.evil();
        hostile.config(format!("[diff \"\"]\n\tcommand = {evil}\n\ttextconv = {evil}\n\tcachetextconv = true\n"));
        hostile.attributes("* diff=\n");
        hostile.is_shown = true;
    }

    diff_driver_that_converts(hostile) {
        let evil = hostile.evil();
        hostile.config(format!("[diff \"x\"]\n\tcommand = {evil}\n\ttextconv = {evil}\n"));
        hostile.attributes("* diff=x\n");
        hostile.is_shown = true;
    }

    file_system_monitor(hostile) {
        hostile.config(format!("[core]\n\tfsmonitor = {}\n\tfsmonitorHookVersion = 1\n", hostile.evil()));
        hostile.is_shown = true;
    }

    hooks_of_the_repository(hostile) {
        std::fs::create_dir_all(hostile.of_git("hooks")).unwrap();
        for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman"] {
            std::fs::copy(hostile.script(), hostile.of_git("hooks").join(hook)).unwrap();
        }
        hostile.is_shown = true;
    }

    hooks_elsewhere(hostile) {
        for hook in ["post-checkout", "post-index-change", "reference-transaction"] {
            hostile.write(&format!("hooks/{hook}"), std::fs::read(hostile.script()).unwrap());
            std::fs::copy(hostile.script(), hostile.top.join("hooks").join(hook)).unwrap();
        }
        hostile.config("[core]\n\thooksPath = hooks\n");
        hostile.is_shown = true;
    }

    pagers_editors_and_helpers(hostile) {
        let evil = hostile.evil();
        hostile.config(format!(
            "[core]\n\tpager = {evil}\n\teditor = {evil}\n\taskPass = {evil}\n\tgitProxy = {evil}\n[pager]\n\tlog = \
             {evil}\n\tdiff = {evil}\n\tstatus = {evil}\n[credential]\n\thelper = {evil}\n[sequence]\n\teditor = {evil}\n\
             [interactive]\n\tdiffFilter = {evil}\n[alias]\n\tstatus = !{evil}\n\tlog = !{evil}\n[color]\n\tui = always\n"
        ));
        hostile.is_shown = true;
    }

    merge_drivers_and_trailers(hostile) {
        let evil = hostile.evil();
        hostile.config(format!(
            "[merge \"x\"]\n\tdriver = {evil}\n[trailer \"t\"]\n\tcommand = {evil}\n\tcmd = {evil}\n[mergetool \"x\"]\n\
             \tcmd = {evil}\n[uploadpack]\n\tpackObjectsHook = {evil}\n[submodule \"x\"]\n\tupdate = !{evil}\n"
        ));
        hostile.attributes("* merge=x\n");
        hostile.is_shown = true;
    }

    program_for_signatures(hostile) {
        let evil = hostile.evil();
        hostile.config(format!(
            "[gpg]\n\tprogram = {evil}\n[gpg \"ssh\"]\n\tprogram = {evil}\n[log]\n\tshowSignature = true\n"
        ));
        let head = hostile.git(&["cat-file", "commit", "HEAD"]);
        let (head, message) = head.split_once("\n\n").unwrap();
        let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----";
        hostile.write("signed", format!("{head}\n{signature}\n\n{message}\n"));
        let signed = hostile.git(&["hash-object", "-t", "commit", "-w", "signed"]);
        hostile.git(&["update-ref", "refs/heads/main", &signed]);
        hostile.is_shown = true;
    }

    /// An object that is missing is fetched from where the repository says, by a program of its choice.
    partial_clone(hostile) {
        let evil = hostile.evil();
        hostile.git(&["config", "core.repositoryformatversion", "1"]);
        hostile.config(format!(
            "[extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\tpromisor = true\n\turl = ext::{evil}\n\
             \tvcs = evil\n\tuploadpack = {evil}\n[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always\n\
             [core]\n\tsshCommand = {evil}\n"
        ));
        let blob = hostile.git(&["rev-parse", "HEAD:a.txt"]);
        hostile.remove(&format!(".git/objects/{}/{}", &blob[..2], &blob[2..]));
    }

    /// Git quotes a value that it cannot use.
    include_of_a_secret(hostile) {
        let secret = hostile.secret_config();
        hostile.config(format!("[include]\n\tpath = {}\n", secret.display()));
        hostile.is_shown = true;
    }

    include_of_a_secret_for_its_place(hostile) {
        let secret = hostile.secret();
        hostile.config(format!("[includeIf \"gitdir:/**\"]\n\tpath = {}\n", secret.display()));
        hostile.is_shown = true;
    }

    patterns_from_outside(hostile) {
        let secret = hostile.secret();
        let secret = secret.display();
        hostile.config(format!("[core]\n\texcludesFile = {secret}\n\tattributesFile = {secret}\n[mailmap]\n\tfile = {secret}\n"));
        hostile.config(format!("[blame]\n\tignoreRevsFile = {secret}\n[commit]\n\ttemplate = {secret}\n[diff]\n\torderFile = {secret}\n"));
        hostile.is_shown = true;
    }

    worktree_elsewhere(hostile) {
        let outside = hostile.outside().to_owned();
        hostile.config(format!("[core]\n\tworktree = {}\n", outside.display()));
        hostile.is_shown = true;
    }

    worktree_above(hostile) {
        hostile.config("[core]\n\tworktree = ../../..\n");
        hostile.is_shown = true;
    }

    /// Files of the other place that are in the index are shown with their contents.
    worktree_elsewhere_with_known_names(hostile) {
        hostile.write("secret.txt", "known\n");
        hostile.git(&["add", "secret.txt"]);
        hostile.git(&["commit", "-q", "-m", "known name"]);
        let outside = hostile.outside().to_owned();
        hostile.git(&["config", "core.worktree", outside.to_str().unwrap()]);
        hostile.is_shown = true;
    }

    unknown_extension(hostile) {
        hostile.git(&["config", "core.repositoryformatversion", "1"]);
        hostile.config("[extensions]\n\tobjectFormat = ../../x\n");
    }

    configuration_that_is_no_text(hostile) {
        hostile.config(b"[\xff\"\\\n\0]]\n[a \"b\n= \\");
        hostile.is_shown = true;
    }

    /// The remote of the branch is told as its upstream; nothing else of it counts.
    upstream_with_programs(hostile) {
        let evil = hostile.evil();
        git(&hostile.top, &["update-ref", "refs/remotes/origin/main", "HEAD"]);
        hostile.config(format!(
            "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[remote \"origin\"]\n\turl = ext::{evil}\n\
             \tfetch = +refs/heads/*:refs/remotes/origin/*\n\tuploadpack = {evil}\n"
        ));
        hostile.is_shown = true;
    }
}
