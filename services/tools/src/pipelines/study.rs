//! `nisaba.edition_study_guide` and `metis.course_from_byom`.

use serde_json::{Value, json};

use super::{ask, edited, file, refused, samples};

/// Documents and material of the samples.
async fn material() -> (Value, Value) {
    let names = ["01-tides.md", "02-dry-stone-walls.html", "03-sundials.pdf", "04-bread.epub"];
    let uris: Vec<String> = names.iter().map(|name| samples(&format!("material/{name}"))).collect();
    let fetched = ask("source.fetch", json!({ "uris": uris })).await;
    assert_eq!(fetched["failures"], json!([]));
    let documents = fetched["documents"].clone();
    let args = json!({ "mode": "material", "documents": documents, "failures": [], "title": "Four small crafts" });
    (documents, ask("sophia.ground", args).await)
}

#[tokio::test]
async fn material_of_four_formats_is_read_with_its_sections_and_places() {
    let (documents, material) = material().await;
    let names: Vec<&str> = documents.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "01-tides.md",
            "02-dry-stone-walls.html",
            "03-sundials.pdf",
            "04-bread.epub/001-dough.xhtml",
            "04-bread.epub/002-crust.xhtml"
        ]
    );
    let places: Vec<&str> =
        material["sections"].as_array().unwrap().iter().map(|one| one["place"].as_str().unwrap()).collect();
    insta::assert_snapshot!("material-places", places.join("\n"));
}

#[tokio::test]
async fn a_study_guide_stands_on_quotes_that_are_found_again() {
    let (documents, material) = material().await;
    let outline =
        ask("composition.suggest", json!({ "mode": "outline", "material": material })).await["outline"].clone();
    let args = json!({ "mode": "study-guide", "material": material, "outline": outline });
    let guide = ask("composition.suggest", args).await["guide"].clone();
    let questions =
        ask("sophia.ground", json!({ "mode": "questions", "material": material })).await["questions"].clone();
    let work = json!({ "guide": guide, "questions": questions });
    let args = json!({ "mode": "quotes", "work": work, "documents": documents });
    let citations = ask("sophia.fact_check", args).await;
    assert_eq!((&citations["clear"], &citations["problems"]), (&json!(true), &json!([])), "{citations}");
    let work = edited(work).await;
    let mut args = json!({
        "mode": "render-guide", "guide": work["guide"], "questions": work["questions"], "citations": citations,
    });
    let rendered = ask("composition.suggest", args.clone()).await;
    insta::assert_snapshot!("study-guide.md", file(&rendered, "nisaba", "study-guide.md"));
    insta::assert_snapshot!("questions.md", file(&rendered, "nisaba", "questions.md"));
    insta::assert_snapshot!("answers.md", file(&rendered, "nisaba", "answers.md"));
    insta::assert_snapshot!("study-guide.html", file(&rendered, "nisaba", "study-guide.html"));

    // A quote that was changed after the check is not rendered.
    args["guide"]["glossary"][0]["cited"]["quote"]["text"] = json!("something else");
    assert_eq!(refused("composition.suggest", args).await.code, "quotes-changed-after-check");
}

#[tokio::test]
async fn a_course_is_a_folder_of_lessons_with_an_index_and_answers() {
    let (documents, material) = material().await;
    let args = json!({ "mode": "course-outline", "material": material, "lessons": 8 });
    let course = ask("composition.suggest", args).await["course"].clone();
    let args = json!({ "mode": "lessons", "material": material, "course": course });
    let lessons = ask("composition.suggest", args).await;
    assert!(lessons["narration"].as_str().unwrap().starts_with("Lesson 1."));
    let questions =
        ask("sophia.ground", json!({ "mode": "questions", "material": material })).await["questions"].clone();
    let work = edited(json!({ "lessons": lessons["lessons"], "questions": questions })).await;
    let args = json!({ "mode": "quotes", "work": work, "documents": documents });
    let citations = ask("sophia.fact_check", args).await;
    let args = json!({
        "mode": "render-course", "course": course, "lessons": work["lessons"], "questions": work["questions"], "citations": citations,
    });
    let rendered = ask("composition.suggest", args).await;
    insta::assert_snapshot!("course-index.md", file(&rendered, "metis", "index.md"));
    insta::assert_snapshot!("course-lesson-02.md", file(&rendered, "metis", "lesson-02.md"));
    let names: Vec<&String> = rendered["files"].as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 2 * (1 + course["lessons"].as_array().unwrap().len() + 1) + 1, "{names:?}");
}
