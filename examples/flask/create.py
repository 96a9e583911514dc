from worker import db, web

with web.app_context():
    db.create_all()  # in production: flask db migrate
