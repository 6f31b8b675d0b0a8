//! Ways to another repository of the machine, which is not shown.

use std::os::unix::fs::symlink;

use crate::hostile::git;

cases! {
    git_file_to_another(hostile) {
        hostile.remove(".git");
        hostile.write(".git", format!("gitdir: {}\n", hostile.private().join(".git").display()));
    }

    git_link_to_another(hostile) {
        hostile.link(".git", &hostile.private().join(".git"));
    }

    /// The same where the other one lies in a directory that is allowed.
    git_file_to_a_neighbour(hostile) {
        let neighbour = hostile.top.with_file_name("neighbour");
        std::fs::rename(hostile.private(), &neighbour).unwrap();
        symlink(&neighbour, hostile.private()).unwrap();
        hostile.remove(".git");
        hostile.write(".git", "gitdir: ../neighbour/.git\n");
    }

    common_directory_of_another(hostile) {
        hostile.write(".git/commondir", hostile.private().join(".git").to_str().unwrap());
    }

    /// It looks like a linked worktree, but the other one does not know it.
    linked_worktree_of_another(hostile) {
        hostile.remove(".git");
        hostile.write("fake/worktrees/x/HEAD", "ref: refs/heads/main\n");
        hostile.write("fake/worktrees/x/commondir", hostile.private().join(".git").to_str().unwrap());
        hostile.write("fake/worktrees/x/gitdir", hostile.top.join(".git").to_str().unwrap());
        hostile.write(".git", "gitdir: fake/worktrees/x\n");
    }

    /// One that the other repository has, but for another directory.
    worktree_of_another(hostile) {
        git(&hostile.private(), &["worktree", "add", "-q", "../linked"]);
        hostile.remove(".git");
        let own = hostile.private().join(".git/worktrees/linked");
        hostile.write(".git", format!("gitdir: {}\n", own.display()));
    }

    objects_borrowed_from_another(hostile) {
        let commit = hostile.private_commit();
        let objects = hostile.private().join(".git/objects");
        hostile.write(".git/objects/info/alternates", format!("{}\n", objects.display()));
        hostile.write(".git/refs/heads/main", format!("{commit}\n"));
    }

    objects_borrowed_by_a_relative_path(hostile) {
        let commit = hostile.private_commit();
        hostile.write(".git/objects/info/alternates", "# comment\n../../../../outside/private/.git/objects\n");
        hostile.write(".git/refs/heads/main", format!("{commit}\n"));
    }

    objects_borrowed_by_a_quoted_path(hostile) {
        let commit = hostile.private_commit();
        let objects = hostile.private().join(".git/objects");
        hostile.write(".git/objects/info/alternates", format!("\"{}\"\n", objects.display()));
        hostile.write(".git/refs/heads/main", format!("{commit}\n"));
    }

    /// Borrowed from one that is allowed and borrows itself.
    objects_borrowed_by_a_neighbour(hostile) {
        let neighbour = hostile.top.with_file_name("neighbour");
        git(hostile.outside(), &["clone", "-q", "--bare", "--shared", "private", neighbour.to_str().unwrap()]);
        let commit = hostile.private_commit();
        hostile.write(".git/objects/info/alternates", format!("{}\n", neighbour.join("objects").display()));
        hostile.write(".git/refs/heads/main", format!("{commit}\n"));
    }

    /// A worktree that names a directory which is none is not deleted.
    worktree_that_is_another_directory(hostile) {
        hostile.write("sub/precious.txt", "precious\n");
        hostile.write(".git/worktrees/added/HEAD", "ref: refs/heads/added\n");
        hostile.write(".git/worktrees/added/commondir", "../..\n");
        hostile.write(".git/worktrees/added/gitdir", hostile.outside().join("private/.git").to_str().unwrap());
    }
}
