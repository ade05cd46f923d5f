use sekali_schemas::{Header, Headers};

use super::literal;

#[test]
fn headers_become_array_texts() {
    let headers: Headers = [
        Header { name: r#"a"b\,{}"#, value: Some(&[0, 0xFF, b'"']) },
        Header { name: "", value: None },
        Header { name: "NULL", value: Some(b"") },
    ]
    .into_iter()
    .collect();
    assert_eq!(literal::names(&headers), r#"{"a\"b\\,{}","","NULL"}"#);
    assert_eq!(literal::values(&headers), r#"{"\\x00ff22",NULL,"\\x"}"#);
    assert_eq!(literal::names(&Headers::default()), "{}");
}
