use sekali_schemas::{Header, Headers};

use sekali_schemas::array_literal;

#[test]
fn headers_become_array_texts() {
    let headers: Headers = [
        Header { name: r#"a"b\,{}"#, value: Some(&[0, 0xFF, b'"']) },
        Header { name: "", value: None },
        Header { name: "NULL", value: Some(b"") },
    ]
    .into_iter()
    .collect();
    assert_eq!(array_literal::names(&headers), r#"{"a\"b\\,{}","","NULL"}"#);
    assert_eq!(array_literal::values(&headers), r#"{"\\x00ff22",NULL,"\\x"}"#);
    assert_eq!(array_literal::names(&Headers::default()), "{}");
}
