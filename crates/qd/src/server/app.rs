//! The browser app, which the build script has put into the program; nothing where it was not built (`make web`).

use qd_hub::AppFile;

/// Made by `build.rs`. Part of the program, so that an installed `qd` needs no other files.
pub(crate) static FILES: &[AppFile] = include!(concat!(env!("OUT_DIR"), "/app.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    fn content(file: &AppFile) -> Vec<u8> {
        if !file.is_packed {
            return file.bytes.to_vec();
        }
        let end = file.bytes.len() - 8;
        assert_eq!(file.bytes[..3], [0x1f, 0x8b, 8], "{} is no gzip file", file.path);
        assert_eq!(file.bytes[end + 4..], (file.length as u32).to_le_bytes(), "{}", file.path);
        miniz_oxide::inflate::decompress_to_vec(&file.bytes[10..end]).unwrap()
    }

    /// Whether the app was built or not.
    #[test]
    fn the_app_is_there_whole_or_not_at_all() {
        let Some(index) = FILES.iter().find(|file| file.path == "/index.html") else {
            assert!(FILES.is_empty(), "an app without its first page");
            return;
        };
        let page = String::from_utf8(content(index)).unwrap();
        let named: Vec<&str> = page.split('"').filter(|text| text.starts_with("/assets/")).collect();
        assert!(!named.is_empty(), "{page}");
        for name in named {
            assert!(FILES.iter().any(|file| file.path == name), "{name} is missing");
        }
        for file in FILES {
            assert_eq!(content(file).len(), file.length, "{}", file.path);
            assert!(file.tag.starts_with("W/\"") && file.tag.len() == 20, "{}", file.tag);
        }
    }
}
