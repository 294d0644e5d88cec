//! Links the command such that it starts under a glibc that is too old for protection: it has to be there to say so.

/// What has a newer version in the C library that we are linked with: see `c/older_glibc.c`.
const WRAPPED: [&str; 18] = [
    "__libc_start_main",
    "dlsym",
    "fstat64",
    "fstatat64",
    "lstat64",
    "pthread_attr_getguardsize",
    "pthread_attr_getstack",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_getattr_np",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setname_np",
    "pthread_setspecific",
    "pthread_sigmask",
    "stat64",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=c/older_glibc.c");
    let objects = cc::Build::new().file("c/older_glibc.c").opt_level(2).compile_intermediates();
    for object in objects {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
    for name in WRAPPED {
        println!("cargo:rustc-link-arg-bins=-Wl,--wrap={name}");
    }
    // Where these functions were. Later ones have libraries of these names with nothing in them.
    println!(
        "cargo:rustc-link-arg-bins=-Wl,--push-state,--no-as-needed,-l:libpthread.so.0,-l:libdl.so.2,--pop-state"
    );
}
