//! Git's own files that are links, pipes or something else than git wrote.

use std::os::unix::fs::symlink;

cases! {
    configuration_is_a_link(hostile) {
        hostile.link(".git/config", &hostile.secret_config());
    }

    packed_references_are_a_link(hostile) {
        hostile.link(".git/packed-refs", &hostile.secret());
    }

    shallow_is_a_link(hostile) {
        hostile.link(".git/shallow", &hostile.secret());
    }

    alternates_are_a_link(hostile) {
        hostile.link(".git/objects/info/alternates", &hostile.secret());
    }

    head_is_a_link(hostile) {
        hostile.link(".git/HEAD", &hostile.secret_id());
    }

    head_is_a_link_to_a_branch_elsewhere(hostile) {
        std::fs::write(hostile.outside().join("head"), "ref: refs/heads/TOP-SECRET\n").unwrap();
        hostile.link(".git/HEAD", &hostile.outside().join("head"));
    }

    reference_is_a_link(hostile) {
        hostile.link(".git/refs/heads/stolen", &hostile.secret_id());
        hostile.base = "stolen".to_owned();
    }

    index_is_a_link(hostile) {
        hostile.link(".git/index", &hostile.private().join(".git/index"));
    }

    shared_index_is_a_link(hostile) {
        hostile.git(&["update-index", "--split-index"]);
        for entry in std::fs::read_dir(hostile.of_git("")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.starts_with("sharedindex.") {
                hostile.link(&format!(".git/{name}"), &hostile.private().join(".git/index"));
            }
        }
    }

    /// Git opens whatever the index names.
    index_names_files_outside(hostile) {
        hostile.write("xx/xx/outside/secret.txt", "known\n");
        hostile.git(&["add", "xx"]);
        hostile.remove("xx");
        let mut index = std::fs::read(hostile.of_git("index")).unwrap();
        let at = index.windows(6).position(|bytes| bytes == b"xx/xx/").unwrap();
        index[at..at + 6].copy_from_slice(b"../../");
        std::fs::write(hostile.of_git("index"), index).unwrap();
    }

    references_are_a_link(hostile) {
        hostile.link(".git/refs", &hostile.private().join(".git/refs"));
    }

    objects_are_a_link(hostile) {
        let commit = hostile.private_commit();
        hostile.link(".git/objects", &hostile.private().join(".git/objects"));
        hostile.write(".git/refs/heads/main", format!("{commit}\n"));
    }

    objects_of_one_prefix_are_a_link(hostile) {
        let commit = hostile.private_commit();
        for entry in std::fs::read_dir(hostile.private().join(".git/objects")).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap())).unwrap();
            if name.len() == 2 && !hostile.of_git("objects").join(&name).exists() {
                hostile.link(&format!(".git/objects/{name}"), &path);
            }
        }
        hostile.write(".git/refs/heads/stolen", format!("{commit}\n"));
        hostile.write(".git/HEAD", "ref: refs/heads/stolen\n");
    }

    pack_is_a_link(hostile) {
        crate::hostile::git(&hostile.private(), &["gc", "-q"]);
        let commit = hostile.private_commit();
        for entry in std::fs::read_dir(hostile.private().join(".git/objects/pack")).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap())).unwrap();
            hostile.link(&format!(".git/objects/pack/{name}"), &path);
        }
        hostile.write(".git/refs/heads/main", format!("{commit}\n"));
    }

    worktree_that_is_a_link(hostile) {
        std::fs::create_dir_all(hostile.of_git("worktrees/x")).unwrap();
        hostile.write(".git/worktrees/x/commondir", "../..\n");
        hostile.write(".git/worktrees/x/HEAD", "ref: refs/heads/main\n");
        hostile.link(".git/worktrees/x/gitdir", &hostile.secret());
    }

    head_of_a_worktree_is_a_link(hostile) {
        hostile.write(".git/worktrees/x/commondir", "../..\n");
        hostile.write(".git/worktrees/x/gitdir", "/nowhere/.git\n");
        hostile.link(".git/worktrees/x/HEAD", &hostile.secret_id());
    }

    worktrees_are_a_link(hostile) {
        hostile.link(".git/worktrees", &hostile.outside().join("private"));
    }

    patterns_are_links(hostile) {
        hostile.link(".git/info/exclude", &hostile.secret());
        hostile.link(".git/info/attributes", &hostile.secret());
    }

    /// Whoever writes a reference writes its log, which leads out.
    logs_are_a_link(hostile) {
        std::fs::create_dir(hostile.outside().join("logs")).unwrap();
        hostile.link(".git/logs", &hostile.outside().join("logs"));
        hostile.is_shown = true;
    }

    log_of_a_branch_is_a_link(hostile) {
        hostile.link(".git/logs/refs/heads/added", &hostile.secret());
        hostile.is_shown = true;
    }

    submodule_settings_are_a_link(hostile) {
        std::fs::write(hostile.outside().join("modules"), "[submodule]\n\tfetchJobs = TOP-SECRET\n").unwrap();
        hostile.link(".gitmodules", &hostile.outside().join("modules"));
    }

    attributes_and_ignores_are_links(hostile) {
        for name in [".gitattributes", ".gitignore", ".mailmap", "sub/.gitattributes", "sub/.gitignore"] {
            symlink(hostile.secret(), hostile.top.join(name)).unwrap();
        }
        hostile.is_shown = true;
    }

    files_are_links(hostile) {
        hostile.link("b.txt", &hostile.secret());
        hostile.link("sub", hostile.outside());
        symlink(hostile.secret(), hostile.top.join("fresh")).unwrap();
        hostile.is_shown = true;
    }

    head_is_a_pipe(hostile) {
        hostile.pipe(".git/HEAD");
    }

    configuration_is_a_pipe(hostile) {
        hostile.pipe(".git/config");
    }

    index_is_a_pipe(hostile) {
        hostile.pipe(".git/index");
    }

    packed_references_are_a_pipe(hostile) {
        hostile.pipe(".git/packed-refs");
    }

    reference_is_a_pipe(hostile) {
        hostile.pipe(".git/refs/heads/x");
        hostile.base = "x".to_owned();
    }

    object_is_a_pipe(hostile) {
        let blob = hostile.git(&["rev-parse", "HEAD:a.txt"]);
        hostile.pipe(&format!(".git/objects/{}/{}", &blob[..2], &blob[2..]));
    }

    pack_is_a_device(hostile) {
        hostile.link(".git/objects/pack/pack-x.idx", std::path::Path::new("/dev/zero"));
    }

    git_directory_is_a_pipe(hostile) {
        hostile.pipe(".git");
    }

    settings_of_the_worktree_are_pipes(hostile) {
        hostile.pipe(".gitmodules");
    }

    patterns_of_the_worktree_are_pipes(hostile) {
        hostile.pipe(".gitattributes");
        hostile.pipe(".gitignore");
    }

    damaged_everywhere(hostile) {
        hostile.write(".git/packed-refs", b"\xff\0\n");
        hostile.write(".git/HEAD", b"\xff");
        hostile.write(".git/index", b"DIRC\0\0\0\x02\xff\xff\xff\xff");
    }

    damaged_index(hostile) {
        hostile.write(".git/index", b"DIRC\0\0\0\x04\xff\xff\xff\xff");
    }
}
