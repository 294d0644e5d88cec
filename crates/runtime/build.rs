//! Link arguments of `libunderstudy.so`, and the small C part.

fn main() {
    for argument in [
        // No start-up files: the library has neither a main nor constructors of its own beyond one entry.
        "-nostartfiles",
        // The constructor must run before those of every other library: what they do is to be recorded.
        "-Wl,-z,initfirst",
        "-Wl,-z,now",
        "-Wl,-soname,libunderstudy.so",
        // A guest that unloads and reloads libraries must never unload this one.
        "-Wl,-z,nodelete",
        // libc loads the unwinder when a thread is first cancelled or leaves by pthread_exit. That has system calls,
        // and its moment may come earlier in one copy than in the other: so it is there from the start.
        "-Wl,--push-state,--no-as-needed,-l:libgcc_s.so.1,--pop-state",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    // Variadic functions can only be written in C. Their names are hidden: the exports are jumps in Rust,
    // because rustc's list of exported symbols knows nothing of C.
    cc::Build::new()
        .file("c/stdio.c")
        .opt_level(2)
        .flag("-fno-stack-protector")
        .flag("-fvisibility=hidden")
        .flag("-fno-builtin")
        .flag("-fexceptions")
        .compile("us_stdio");
    println!("cargo:rerun-if-changed=c/stdio.c");
}
