pub(crate) use qd_link::clock::now_ms;
