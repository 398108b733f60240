//! The PDF and the EPUB of `samples/material`, written here so that everybody can see what is in them.

use super::{epub, pdf};

const FOLDER: &str = "../../samples/material";

const SUNDIAL: [&[(f64, f64, &str)]; 2] = [
    &[
        (20.0, 770.0, "Sundials"),
        (11.0, 735.0, "Sample material, written for trying out study guides and courses."),
        (15.0, 700.0, "How a sundial works"),
        (11.0, 672.0, "A sundial is a plate with marks that tells the time by a shadow. The part that"),
        (11.0, 658.0, "throws the shadow is called the gnomon. The gnomon must point to the pole of the"),
        (11.0, 644.0, "sky, because only then does its shadow fall on the same mark at the same hour all"),
        (11.0, 630.0, "year round. In Europe it leans by 35 to 70 degrees, as far as the place lies north."),
        (11.0, 602.0, "The style is the edge of the gnomon whose shadow is read. A sharp style makes a"),
        (11.0, 588.0, "sharp shadow, but never a perfect one, for the Sun is a disc and not a point."),
    ],
    &[
        (15.0, 770.0, "Why it differs from a watch"),
        (11.0, 742.0, "Solar noon is the moment when the Sun stands due south. A watch shows the time of a"),
        (11.0, 728.0, "zone, and noon by the watch is the same for places that are 1,000 kilometres apart."),
        (11.0, 700.0, "The equation of time is the difference between a sundial and an even clock. It grows to"),
        (11.0, 686.0, "16 minutes in November, because the Earth moves unevenly on its path and its axis leans."),
    ],
];

const BREAD: [(&str, &str); 2] = [
    (
        "dough.xhtml",
        "<html xmlns=\"http://www.w3.org/1999/xhtml\"><head><title>Dough</title></head><body>\n<h1>Dough</h1>\n<p>Sample material, \
         written for trying out study guides and courses.</p>\n<p>Dough is a mixture of flour and water that holds together. Gluten is the \
         net of proteins that forms when flour is wetted and kneaded. Dough rises because yeast makes gas and the gluten holds \
         it.</p>\n<h2>Proof</h2>\n<p>The time in which shaped dough rises is called the proof. At 26 degrees it takes about 60 minutes; in \
         a cold room it may take all night.</p>\n</body></html>\n",
    ),
    (
        "crust.xhtml",
        "<html xmlns=\"http://www.w3.org/1999/xhtml\"><head><title>Crust</title></head><body>\n<h1>Crust</h1>\n<p>The crust is the hard \
         outer part of a loaf. It turns brown because sugars and proteins change in the heat. Steam in the first 10 minutes keeps the \
         surface soft, so that the loaf can still grow.</p>\n<p>A score is a cut in the surface that lets the loaf open where the baker \
         wants it.</p>\n</body></html>\n",
    ),
];

#[test]
fn the_pdf_and_the_epub_of_the_samples_are_what_is_written_here() {
    let chapters: Vec<(&str, &[u8])> = BREAD.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let files = [("03-sundials.pdf", pdf::tests::sample(&SUNDIAL)), ("04-bread.epub", epub::tests::book(&chapters))];
    for (name, bytes) in files {
        let path = format!("{FOLDER}/{name}");
        if std::env::var_os("UPDATE_SAMPLES").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name} differs: write it with UPDATE_SAMPLES=1");
    }
}
